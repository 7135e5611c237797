"""Recovery inside a region: token rings, what they aggregate, caches, repairs, stability."""
