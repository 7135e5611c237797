"""Keyed delivery: a layer that hands each key over once, however often and by whomever it is sent."""
