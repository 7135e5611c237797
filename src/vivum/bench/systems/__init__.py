"""One module for each way of sending. Each has `LABEL`, `prepare(crew, cell)`, `send` and `receive`.

`prepare` starts what the system needs besides sender and receivers, and returns options for them. `send` and `receive`
are tasks of workers: they say `ready`, then the sender hears `meet` and says `met` when all receivers can hear it;
on `go` it sends as fast as it can until the end of the window and tells how much.
"""
