"""What a program uses: nodes, topics, events, types and guarantees. `import vivum` exports it.

`connecting` joins a domain, `handle` is a node, `topic` a typed channel, `inbox` the queue of its reader.
"""
