"""Rows that were published are recognised in any order, each as often as it was there."""

import random

import numpy
import pyarrow

from vivum.pipeline.sink.digests import rest_of, row_digests, total_of
from vivum.pipeline.sink.staging import STAGED_SCHEMA


def digests(*rows: tuple[str, bytes]) -> "numpy.ndarray":
    topics, payloads = zip(*rows, strict=True)
    return row_digests(
        pyarrow.RecordBatch.from_arrays([pyarrow.array(topics), pyarrow.array(payloads)], schema=STAGED_SCHEMA)
    )


def test_topic_and_payload_make_a_row_and_its_place_does_not():
    one, other, same = digests(("/a", b"x"), ("/b", b"x"), ("/a", b"x"))
    assert one == same != other
    assert total_of(digests(("/a", b"x"), ("/a", b"y"))) == total_of(digests(("/a", b"y"), ("/a", b"x")))


def test_the_rest_is_what_a_dumb_count_says():
    chance = random.Random(5)
    for _ in range(300):
        old = [chance.randrange(5) for _ in range(chance.randrange(8))]
        new = old + [chance.randrange(5) for _ in range(chance.randrange(5))]
        if chance.random() < 0.3 and new:
            new.pop(chance.randrange(len(new)))
        chance.shuffle(new)
        left, marks = list(old), []
        for each in new:
            marks.append(each not in left)
            if each in left:
                left.remove(each)
        found = rest_of(numpy.array(new, "uint64"), numpy.array(old, "uint64"))
        assert (None if found is None else found.tolist()) == (None if left else marks)
