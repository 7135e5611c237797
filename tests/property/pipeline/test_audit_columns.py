"""The audit on whole columns: the compiled walk is the checker, packed blocks come back, the screen misses nothing."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted.history import History
from planted.judged import check_history
from vivum.observe.trace import TraceRecord
from vivum.pipeline.audit import _causal_walk_twin
from vivum.pipeline.audit.columns import CODES, ROWS, packed, unpacked
from vivum.pipeline.audit.plain import DOUBTS, MEMBERS_BETWEEN, PlainGroups

HALF = 1 << 32
LIVES = ["1.1", "2.1", "3.1", "3.2"]
FIELDS = ("group", "sequence", "view", "digest")

small = st.integers(1, 4)
lives = st.sampled_from(LIVES)
groups = st.integers(1, 2)


@st.composite
def histories(draw: st.DrawFn) -> list[TraceRecord]:
    """Mostly in order: each message is delivered to all soon, but now and then one is left out, repeated or late."""
    history = History()
    sent: dict[tuple[str, int], int] = {}
    late: list[tuple[str, str, int, int]] = []
    for life in LIVES:
        for group in (1, 2):
            history.join(life, group)
    for _ in range(draw(st.integers(1, 14))):
        what = draw(st.integers(0, 11))
        life, group = draw(lives), draw(groups)
        if what == 0:
            history.leave(life, group)
        elif what == 1:
            history.join(life, group)
        elif what == 2:
            history.view(life, draw(small), *draw(st.permutations(LIVES)), group=group)
        elif what == 3:
            history.lost(life, draw(lives), draw(small), 3, group=group)
        elif what == 4 and late:
            receiver, sender, number, where = late.pop(draw(st.integers(0, len(late) - 1)))
            history.deliver(receiver, sender, number, group=where)
        elif what == 5:
            wrong = draw(st.sampled_from([None, None, 7]))
            history.deliver(
                life, draw(lives), draw(small), group=group, view=draw(st.sampled_from([0, 0, 1])), digest=wrong
            )
        else:
            number = sent[life, group] = sent.get((life, group), 0) + 1
            view = draw(st.sampled_from([0, 0, 0, 1, 2]))
            history.send(life, number, group=group, view=view)
            for receiver in LIVES:
                if draw(st.integers(0, 3)):
                    history.deliver(receiver, life, number, group=group, view=view)
                else:
                    late.append((receiver, life, number, group))
    return history.records


def block_of(records: list[TraceRecord], writers: int = 1) -> numpy.ndarray:
    rows = []
    for position, record in enumerate(records):
        kind = CODES[type(record).__struct_config__.tag]
        life = record.node * HALF + record.incarnation
        sender = getattr(record, "sender", record.node) * HALF + getattr(
            record, "sender_incarnation", record.incarnation
        )
        group, sequence, view, digest = (getattr(record, name, 0) for name in FIELDS)
        rows.append(
            (kind, record.node % writers, position, record.time_ns, group, life, sender, sequence, view, digest)
        )
    return numpy.array(rows, "int64").reshape(-1, len(ROWS)).T.copy()


@given(histories(), st.booleans(), st.randoms(use_true_random=False))
def test_the_compiled_walk_finds_what_the_checker_finds(records, hold, random):
    compiled = pytest.importorskip("vivum.pipeline.audit._causal_walk")
    block = block_of(records, writers=3 if hold else 1)
    if hold:
        # Clocks differ: each node's records keep their order and move against the others'.
        nodes = block[5] // HALF
        shift = numpy.array([random.randrange(0, 40_000) for _ in range(5)])
        block[3] += shift[nodes]
        block = numpy.ascontiguousarray(block[:, numpy.argsort(block[3], kind="stable")])
    cut = random.randrange(0, block.shape[1] + 1)
    blocks = [numpy.ascontiguousarray(each) for each in (block[:, :cut], block[:, cut:])]
    count, found = compiled.walk(blocks, hold)
    expected_count, expected = _causal_walk_twin.walk(blocks, hold)
    assert (count, sorted(found)) == (expected_count, sorted(expected))


@given(histories())
def test_the_screen_has_a_doubt_wherever_a_checker_finds_something(records):
    block = block_of(records)
    members = {
        (0, place): MEMBERS_BETWEEN.join(record.members)
        for place, record in enumerate(records)
        if hasattr(record, "members")
    }
    found = PlainGroups()
    found.take_sends(block[:, block[0] != CODES["message_delivered"]], members)
    found.take_deliveries(block[:, block[0] != CODES["message_sent"]])
    doubts = found.doubtful()
    for check, doubt in DOUBTS.items():
        for violation in check_history(records, [check]):
            assert doubts.get(violation.witnesses[-1].group, 0) & doubt, violation


@given(st.lists(st.tuples(*[st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300)] * len(ROWS)), min_size=1))
def test_packed_blocks_come_back(rows):
    block = numpy.array(rows, "int64").T.copy()
    assert (unpacked(packed(block)) == block).all()


def test_rows_that_differ_little_take_little():
    block = numpy.zeros((len(ROWS), 1000), "int64")
    block[2] = numpy.arange(1000)
    block[5] = numpy.arange(1000) % 10 * HALF + 1
    assert len(packed(block)) < 4 * 1000
