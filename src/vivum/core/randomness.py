"""One seed decides every random choice.

A `RandomSource` is a `random.Random` that can be forked by name. A fork depends on the seed and the path
of names alone: not on how much was drawn before, on the order of forking, or on the hash seed of the process. So
a part that draws one number more does not change what others draw, and a failing seed keeps failing.
"""

import hashlib
import random


class RandomSource(random.Random):
    """A seeded source of randomness, which machines get as an argument."""

    path: str

    def __new__(cls, seed: int, _names: tuple[str | int, ...] = ()) -> "RandomSource":  # noqa: ARG004
        """Make the source without letting `random.Random` look at our arguments."""
        return super().__new__(cls)

    def __init__(self, seed: int, _names: tuple[str | int, ...] = ()) -> None:
        self._seed = seed
        self._names = _names
        # Lengths keep ("a", "b") apart from ("a/b",).
        self.path = "".join([str(seed), *(f"/{len(str(name))}:{name}" for name in _names)])
        digest = hashlib.blake2b(self.path.encode(), digest_size=16).digest()
        super().__init__(int.from_bytes(digest, "big"))

    def fork(self, name: str | int, *more: str | int) -> "RandomSource":
        """Return the independent source of these names: the same one for the same names every time."""
        return RandomSource(self._seed, (*self._names, name, *more))
