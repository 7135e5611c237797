"""Coverage-guided fuzzing of all that reads remote bytes: split, messages, control bodies.

    python tests/fuzz/fuzz_wire.py --seconds 60 [--runs N] [--seed N] [--corpus DIR]

Coverage is taken from the Python twin, which has the same branches as the compiled codec; the compiled one runs
beside it on every input and must do the same. A finding is printed with its input and the exit code is not 0;
libFuzzer leaves the input in a file `crash-*` here, and `--replay FILE` runs it again.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["vivum.wire"]):
    from vivum.wire import _codec_twin, control, membership, tokens

from vivum.core.errors import DecodeError
from vivum.core.limits import Limits
from vivum.wire.kinds import KINDS, Kind
from vivum.wire.spread import SpreadList

try:
    from vivum.wire import _codec
except ImportError:
    _codec = None

LIMITS = Limits(ranges_max=8)


def view(split, data):
    """All that a form of the codec says about a buffer."""
    try:
        frames = split(data)
    except DecodeError as error:
        return type(error).__name__, str(error)
    return "frames", [
        (
            *(repr(frame), frame.stream, frame.start, frame.body_stop, frame.domain, frame.key_epoch),
            *(frame.sent_ns, frame.messages(), frame.body(), frame.to_bytes()),
        )
        for frame in frames
    ]


def check(data):
    """Do with a buffer what a node does, in both forms; anything but a `DecodeError` is a finding."""
    seen = view(_codec_twin.split, data)
    if _codec is not None:
        compiled = view(_codec.split, data)
        assert compiled == seen, f"the twins disagree: {compiled} and {seen}"
        trains, joined = view(_codec_twin.split_trains, data), view(_codec.split_trains, data)
        assert joined == trains, f"the twins disagree: {joined} and {trains}"
    if seen[0] != "frames":
        return
    frames = _codec_twin.split(data)
    assert b"".join(frame.to_bytes() for frame in frames) == data
    for frame in frames:
        if frame.kind is Kind.SPREAD:
            own = frame.to_bytes()
            labelled = _codec_twin.relabel(own, 3, 1)
            assert _codec is None or _codec.relabel(own, 3, 1) == labelled
            assert labelled is None or _codec_twin.split(labelled)[0].messages() == frame.messages()
        if not KINDS[frame.kind].has_messages:
            try:
                message = control.decode_control(frame, LIMITS)
            except DecodeError:
                continue
            assert type(message) in control.CONTROL_TYPES[frame.kind]


def seeds():
    """Buffers to begin from: one of each sort, so that not every header must be found by chance."""
    builder = _codec_twin.FrameBuilder(300)
    builder.extend(1, 0, [b"one", b"two", b""])
    builder.append(2, 9, b"three")
    builder.append_fragment(1, 3, _codec_twin.FLAG_MORE, b"begin", total=1000)
    data = builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 6, 7, 0, 200)
    yield data
    yield data + _codec_twin.resend(data)
    builder.append_fragment(1, 3, _codec_twin.FLAG_CONTINUES, b"rest")
    builder.append(1, 4, b"whole")
    builder.append_fragment(1, 5, _codec_twin.FLAG_MORE, b"begin", total=1000)
    builder.append_fragment(2, 7, _codec_twin.FLAG_CONTINUES | _codec_twin.FLAG_MORE, b"middle")
    yield builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 6, 7)
    header = (1, 2, 3, 4, 5, 6)
    builder.append(_codec_twin.GROUP_MAX, 3, SpreadList([(1, 1), (3, 1), (300, 7)]).encode([0, 5, 70_000]))
    builder.append(1, 0, b"for all")
    yield builder.seal(Kind.SPREAD, *header, 0)
    repair = tokens.RepairRequest(3, 1, 2, (5, 6))
    vote = tokens.RateVote(3, 8, 2, 4)
    status = tokens.StreamRecord(1, 2, 4, 3, 9, False, 5, 7, 6, 9, delivered=4)
    for kind, message in [
        (Kind.NAK, control.Nak(1, (1, 2, 5, 9))),
        (Kind.HEARTBEAT, control.Heartbeat(1, 2, 3)),
        (
            Kind.TOKEN,
            tokens.Token(0, 1, 2, 3, 4, (5,), vote, (status,), (repair,)),
        ),
        (Kind.MEMBERSHIP, membership.Subscribe(1, (1, 2), (5, 9))),
        (Kind.CONFIGURATION, membership.Configuration(1, 2, 3, 0, 4, 0, 1, 5, b"content")),
    ]:
        yield control.encode_control(kind, *header, message)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", "-max_total_time", type=int, default=60, help="stop after so many (default %(default)s)"
    )
    parser.add_argument("--runs", type=int, default=-1, help="stop after so many inputs")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzzer's choices (default %(default)s)")
    parser.add_argument("--corpus", type=Path, help="folder of inputs to begin from and to add to")
    parser.add_argument("--replay", type=Path, help="run one input and stop")
    options = parser.parse_args()
    if options.replay is not None:
        check(options.replay.read_bytes())
        return
    with tempfile.TemporaryDirectory() as scratch:
        corpus = options.corpus or Path(scratch)
        corpus.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(seeds()):
            (corpus / f"seed-{number}").write_bytes(data)
        limits = [f"-max_total_time={options.seconds}", f"-runs={options.runs}", f"-seed={options.seed}"]
        atheris.Setup([sys.argv[0], *limits, "-max_len=600", "-timeout=10", str(corpus)], check)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
