"""The ground floor: ids, time, randomness, ranges, errors, limits and the machine contract.

Everything imports this package and it imports nothing of ours. It is pure: no sockets, clocks,
files, threads or global randomness.
"""
