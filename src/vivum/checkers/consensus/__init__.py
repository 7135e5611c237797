"""What a replicated log promises: one file for each property of Figure 3 of the Raft paper, and for its clients."""
