"""The world of sockets: the other one that can drive a node.

`udp` knows sockets and no protocol; `driver` lets an asyncio event loop drive a node over them. The programming
interface for applications comes on top of this.
"""
