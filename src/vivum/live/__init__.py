"""What a programmer uses: nodes, topics, events, types and guarantees. `import vivum` offers it.

`connecting` joins a domain, `handle` is a node, `topic` a typed channel, `inbox` what waits for its reader.
"""
