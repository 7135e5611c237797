"""Drive a node over real sockets, as `sim` drives it in the simulator.

`udp` knows sockets and no protocol; `driver` runs a node over them on an asyncio event loop. The programming interface
for applications (`live`) is built on top.
"""
