"""What a key-value store promises, judged from what its clients saw alone."""
