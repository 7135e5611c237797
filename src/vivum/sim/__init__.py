"""The deterministic simulator: one of the two worlds that can drive a node.

Single-threaded, in virtual time, one seed decides everything. `world` puts the parts together: `scheduler` (virtual
time), `network` (links, loss, partitions), `host` (a machine with a socket buffer and a processor that runs one
node), `workload` (applications), `faults`. `scenario` reads the description from a TOML file, `swarm` makes one up
from a seed.
"""
