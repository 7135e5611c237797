"""Benchmarks: the same work through Vivum, through its peers and through a bare socket, in processes of their own.

`crew` starts and ends processes, `worker` is what runs in them, `counting` checks what arrives, `systems` has one
module for each way of sending, `cell` measures one of them, `peers`, `throughput`, `latency` and `link` are the
benchmarks that `vivum bench` offers. Rates are compared as ratios in one run, never with a stored number.
"""
