"""The demo: a market on this computer, from the publishers to Spark and back, watched and audited.

`exchange` makes the market, `nodes` are the processes with a node, `spark_desk` the one with Spark, `stage` starts,
follows and ends them all.
"""
