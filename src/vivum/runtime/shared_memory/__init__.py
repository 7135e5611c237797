"""Exchange large frames between the nodes of one machine through shared memory instead of the kernel.

To everything above, this is a network: frames arrive as `bytes`, or they are lost and repaired. Only the UDP port knows
of it. Design note: `docs/design/runtime.md`, "Large frames within one machine".
"""
