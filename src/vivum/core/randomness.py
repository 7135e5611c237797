"""One seed decides every random choice.

A `RandomSource` is a `random.Random` that can be forked by name. A fork depends on the seed and the path
of names alone: not on how much was drawn before, on the order of forking, or on the hash seed of the process. So
a part that draws once more leaves the draws of all others as they were, and a failing seed stays a failing seed.
"""

import hashlib
import random


class RandomSource(random.Random):
    """A seeded source of randomness that is handed to machines as an argument."""

    path: str

    def __init__(self, seed: int | str) -> None:
        self.path = str(seed)
        digest = hashlib.blake2b(self.path.encode(), digest_size=16).digest()
        super().__init__(int.from_bytes(digest, "big"))

    def fork(self, *names: str | int) -> "RandomSource":
        """Make the independent source that belongs to these names, the same one for the same names every time."""
        # Lengths keep ("a", "b") apart from ("a/b",).
        parts = "".join(f"/{len(str(name))}:{name}" for name in names)
        return RandomSource(self.path + parts)
