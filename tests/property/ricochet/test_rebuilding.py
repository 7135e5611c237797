"""Whatever is lost and however XORs come: what is rebuilt is bit-exact, and nothing within reach stays lost."""

from random import Random
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from vivum.observe.counters import Counters
from vivum.protocols.ricochet.bins import FrameId
from vivum.protocols.ricochet.rebuilding import Rebuilder
from vivum.wire.codec import FrameBuilder
from vivum.wire.kinds import Kind
from vivum.wire.xor import xor_all

Frames = dict[FrameId, bytes]


def make_frames(count: int, rng: Random) -> Frames:
    found: Frames = {}
    for number in range(count):
        builder = FrameBuilder(1400)
        builder.append(5, number, rng.randbytes(rng.choice([0, 1, 30, 1000])))
        found[1, 1, 5, number] = builder.seal(Kind.GROUP_DATA, 7, 1, 1, 5, 1, number, 0)
    return found


def repair_of(frames: Frames, names: list[FrameId]) -> tuple[dict[FrameId, int], bytes]:
    return {name: crc32(frames[name]) for name in names}, xor_all([frames[name] for name in names])


class Receiver:
    """Has some frames, and takes what is rebuilt as one of its own."""

    def __init__(self, kept_max: int = 256) -> None:
        self.counters = Counters()
        self.rebuilder = Rebuilder(4096, 1 << 24, kept_max, self.counters)
        self.has: Frames = {}

    def take(self, name: FrameId, data: bytes) -> None:
        self.has[name] = data
        self.note(self.rebuilder.add(name, data))

    def repair(self, names: dict[FrameId, int], data: bytes) -> None:
        self.note(self.rebuilder.on_repair(names, data, lambda name: name not in self.has))

    def note(self, rebuilt: list[tuple[FrameId, bytes]]) -> None:
        for name, data in rebuilt:
            assert name not in self.has
            self.has[name] = data


def peel(frames: Frames, lost: set[FrameId], repairs: list[list[FrameId]]) -> set[FrameId]:
    """A dumb oracle: what is left when every XOR that lacks one frame gives it, again and again."""
    left = set(lost)
    while True:
        found = {lacking.pop() for names in repairs if len(lacking := set(names) & left) == 1}
        if not found:
            return left
        left -= found


@given(st.integers(0, 2**32), st.integers(1, 30), st.floats(0, 0.6), st.integers(0, 40))
def test_all_that_an_oracle_finds_is_rebuilt_and_is_what_was_sent(
    seed: int, count: int, loss: float, repairs_count: int
) -> None:
    rng = Random(seed)
    frames = make_frames(count, rng)
    lost = {name for name in frames if rng.random() < loss}
    repairs = [rng.sample(sorted(frames), rng.randint(1, min(8, count))) for _ in range(repairs_count)]
    receiver = Receiver()
    arrivals: list[FrameId | list[FrameId]] = [*(name for name in frames if name not in lost), *repairs]
    rng.shuffle(arrivals)
    for each in arrivals:
        if isinstance(each, list):
            receiver.repair(*repair_of(frames, each))
        elif each not in receiver.has:
            receiver.take(each, frames[each])
    assert receiver.has.keys() >= frames.keys() - peel(frames, lost, repairs)
    assert all(frames[name] == data for name, data in receiver.has.items())
    assert receiver.counters.lateral_refused == 0


@given(st.integers(0, 2**32), st.integers(0, 4))
def test_a_spoiled_or_lying_repair_never_makes_a_wrong_frame(seed: int, kept_max: int) -> None:
    rng = Random(seed)
    frames = make_frames(12, rng)
    lost = set(rng.sample(sorted(frames), 4))
    receiver = Receiver(kept_max)
    for name, data in frames.items():
        if name not in lost:
            receiver.take(name, data)
    for _ in range(40):
        names, data = repair_of(frames, rng.sample(sorted(frames), rng.randint(1, 6)))
        match rng.randrange(5):
            case 0:
                at = rng.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case 1:
                data = data[: rng.randrange(len(data))]
            case 2:
                data += rng.randbytes(5)
            case 3:
                wrong = rng.choice(sorted(names))
                names[wrong] ^= 1
            case _:
                del names[rng.choice(sorted(names))]
        if names:
            receiver.repair(names, data)
    assert all(frames[name] == data for name, data in receiver.has.items())
    assert receiver.rebuilder.kept_count <= kept_max


def test_two_that_lack_several_give_what_they_differ_in() -> None:
    frames = make_frames(3, Random(1))
    a, b, c = frames
    receiver = Receiver()
    receiver.repair(*repair_of(frames, [a, b]))
    receiver.repair(*repair_of(frames, [a, b, c]))
    assert receiver.has == {c: frames[c]}
    receiver.take(a, frames[a])
    assert receiver.has == frames


def test_nothing_grows_past_its_limit() -> None:
    frames = make_frames(40, Random(2))
    counters = Counters()
    rebuilder = Rebuilder(4, 2000, 3, counters)
    names = sorted(frames)
    for name in names[:20]:
        rebuilder.add(name, frames[name])
    for start in range(20, 38, 2):
        rebuilder.on_repair(*repair_of(frames, names[start : start + 2]), lambda _: True)
    assert rebuilder.kept_count == 3
    assert rebuilder.held_bytes <= 2000 + 3 * 1400
    assert counters.lateral_wasted == 6
