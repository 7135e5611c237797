"""One node: its protocols composed behind one machine, which the simulator and the runtime drive alike."""
