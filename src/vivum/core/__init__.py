"""The ground floor: ids, time, randomness, ranges, errors, limits and the machine contract.

Everything imports this package; it imports nothing of Vivum. It is pure: no sockets, clocks,
files, threads or global randomness.
"""
