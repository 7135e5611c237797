"""Heads of keyed topics are taken off by columns, as one would one by one."""

import random
from operator import add

from vivum.pipeline.recording.heads import without_heads
from vivum.protocols.keyed.keys import PLAIN_HEAD, heads_of
from vivum.storage.batch_buffer import BatchBuffer
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_format import decode_batch, log_schema


def test_heads_come_off_the_topics_that_have_them_and_nothing_else_changes():
    buffer = BatchBuffer()
    for seed in range(50):
        chance = random.Random(seed)
        runs, bare = [], []
        for _ in range(chance.randrange(1, 6)):
            payloads = [chance.randbytes(chance.choice([0, 1, 40])) for _ in range(chance.randrange(1, 5))]
            bare += payloads
            topic = chance.choice(["/keyed", "/other", "/plain"])
            if topic != "/plain":
                cut = chance.randrange(len(payloads) + 1)
                payloads = [
                    *map(add, heads_of(bytes(16), 1, 0, cut), payloads),
                    *[PLAIN_HEAD + each for each in payloads[cut:]],
                ]
            runs.append(RecordedRun(topic, 1, 1, 0, 1, 0, 0, payloads))
        entry = buffer.lay_out(runs, 0, 0)
        batch = decode_batch(buffer.seal(entry), entry, log_schema(), "memory")
        begin = chance.randrange(len(batch))
        rows = without_heads(batch.slice(begin), {"/keyed", "/other"})
        rows.validate(full=True)
        assert rows.column("payload").to_pylist() == bare[begin:]
        assert rows.drop_columns(["payload"]) == batch.slice(begin).drop_columns(["payload"])
        assert without_heads(batch, {"/elsewhere"}) is batch
