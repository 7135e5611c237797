"""Keys: each message of a query is handed over once, whoever sends it and however often."""

import random

from vivum.core.ids import GroupId, Member
from vivum.core.machine import Delivery
from vivum.protocols.commands import MessagesLeftOut
from vivum.protocols.keyed.keys import PLAIN_HEAD, QUERIES_MAX, RANGES_MAX, SeenKeys, heads_of

ONE, OTHER = bytes(16), b"\1" * 16


def with_keys(query: bytes, batch: int, first: int, payloads: list[bytes]) -> list[bytes]:
    heads = heads_of(query, batch, first, len(payloads))
    return [head + payload for head, payload in zip(heads, payloads, strict=True)]


def without_keys(payloads: list[bytes]) -> list[bytes]:
    return [PLAIN_HEAD + payload for payload in payloads]


def delivery(payloads: list[bytes], first: int = 0, sender: int = 1) -> Delivery:
    return Delivery(GroupId(1), Member(sender, 1), first, payloads, 1, 0)


def sift(seen: SeenKeys, run: Delivery) -> list[Delivery]:
    return [each for each in seen.sift(run) if isinstance(each, Delivery)]


def texts(*numbers: int) -> list[bytes]:
    return [str(number).encode() for number in numbers]


def test_a_batch_that_is_sent_again_by_another_sender_goes_on_where_the_first_stopped():
    seen = SeenKeys()
    (first,) = seen.sift(delivery(with_keys(ONE, 7, 0, texts(0, 1, 2))))
    assert first.payloads == texts(0, 1, 2)
    skipped, rest = seen.sift(delivery(with_keys(ONE, 7, 0, texts(0, 1, 2, 3, 4)), sender=2))
    assert skipped == MessagesLeftOut(GroupId(1), Member(2, 1), 0, 3, are_repeated=True)
    assert (rest.first_sequence, rest.payloads, rest.sender) == (3, texts(3, 4), Member(2, 1))


def test_a_lower_batch_is_known_as_a_whole_and_queries_do_not_touch_each_other():
    seen = SeenKeys()
    assert sift(seen, delivery(with_keys(ONE, 8, 0, texts(0))))
    assert not sift(seen, delivery(with_keys(ONE, 7, 5, texts(5))))
    assert sift(seen, delivery(with_keys(OTHER, 7, 5, texts(5))))


def test_who_came_late_gets_the_positions_that_it_lacks_when_the_batch_is_sent_again():
    seen = SeenKeys()
    assert sift(seen, delivery(with_keys(ONE, 1, 3, texts(3, 4))))
    runs = sift(seen, delivery(with_keys(ONE, 1, 0, texts(0, 1, 2, 3, 4, 5)), first=10))
    assert [(run.first_sequence, run.payloads) for run in runs] == [(10, texts(0, 1, 2)), (15, texts(5))]


def test_messages_without_a_key_pass_and_those_whose_heads_cannot_be_read_are_left_out():
    seen = SeenKeys()
    mixed = [*without_keys([b"a", b""]), b"", b"\1short", b"\7", *without_keys([b"a"])]
    before, unreadable, after = seen.sift(delivery(mixed))
    assert [(run.first_sequence, run.payloads) for run in (before, after)] == [(0, [b"a", b""]), (5, [b"a"])]
    assert unreadable == MessagesLeftOut(GroupId(1), Member(1, 1), 2, 5, are_repeated=False)


def test_any_crashes_and_repetitions_give_every_message_once_and_in_order():
    for seed in range(50):
        chance = random.Random(seed)
        seen, found = SeenKeys(), []
        for batch in range(5):
            count = chance.randrange(1, 20)
            stops = [chance.randrange(count + 1) for _ in range(chance.randrange(4))]
            for life, stop in enumerate([*stops, count]):
                sent = with_keys(ONE, batch, 0, [b"%d/%d" % (batch, number) for number in range(stop)])
                cut = chance.randrange(stop + 1)
                for part in (sent[:cut], sent[cut:]):
                    for run in sift(seen, delivery(part, sender=life)):
                        found += run.payloads
            assert found[-count:] == [b"%d/%d" % (batch, number) for number in range(count)]
        assert len(found) == len(set(found))


def test_what_is_remembered_has_limits():
    seen = SeenKeys()
    queries = [number.to_bytes(16) for number in range(QUERIES_MAX + 1)]
    for query in queries:
        assert seen.is_new(query, 0, 0)
    assert not seen.is_new(queries[1], 0, 0)
    assert seen.is_new(queries[0], 0, 0)
    for number in range(RANGES_MAX + 2):
        seen.is_new(ONE, 1, 2 * number)
    # The lowest holes count as had.
    assert not seen.is_new(ONE, 1, 1)
    assert seen.is_new(ONE, 1, 2 * RANGES_MAX + 1)
