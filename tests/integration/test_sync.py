"""The API for threads."""

import threading
from collections.abc import Callable
from itertools import islice

import pytest

import vivum.sync
from vivum.live.reader import Reader

TIMEOUT_S = 30


def test_threads_send_and_read_with_the_same_words(domain_name: str) -> None:
    with vivum.sync.connect(domain_name) as first, vivum.sync.connect(domain_name) as second:
        sending = first.enter("/a", bytes, receive=False)
        receiving = second.enter("/a", bytes)
        sending.wait_for_members(2, TIMEOUT_S)
        sending.send(b"one")
        assert sending.try_send(b"two")
        sending.send_many([b"three", b"four"])
        sending.flush(TIMEOUT_S)
        assert receiving.receive(TIMEOUT_S).value == b"one"
        assert [event.value for event in islice(receiving, 2)] == [b"two", b"three"]
        assert receiving.receive(TIMEOUT_S).value == b"four"
        with pytest.raises(TimeoutError):
            receiving.receive(0.05)
        sending.send(b"five")
        assert receiving.receive(TIMEOUT_S).value == b"five"
        assert [each.name for each in first.topics()] == ["/a"]
        assert len(second.nodes()) == 2


def test_many_threads_share_one_node(domain_name: str) -> None:
    with vivum.sync.connect(domain_name) as node:
        topic = node.enter("/a", bytes)

        def send(tag: int) -> None:
            for number in range(50):
                topic.send(b"%d %d" % (tag, number))

        threads = [threading.Thread(target=send, args=(tag,)) for tag in range(8)]
        for thread in threads:
            thread.start()
        found: dict[int, list[int]] = {}
        for batch in topic.batches():
            for payload in batch.payloads:
                tag, number = map(int, payload.split())
                found.setdefault(tag, []).append(number)
            if sum(map(len, found.values())) == 400:
                break
        for thread in threads:
            thread.join()
        assert all(found[tag] == list(range(50)) for tag in range(8))


def test_closing_ends_the_thread_and_whoever_reads(domain_name: str) -> None:
    before = threading.active_count()
    node = vivum.sync.connect(domain_name)
    topic = node.enter("/a", bytes)
    ended = threading.Event()
    reader = threading.Thread(target=lambda: (list(topic), ended.set()))
    reader.start()
    node.close()
    node.close()
    assert ended.wait(TIMEOUT_S)
    reader.join()
    assert threading.active_count() == before
    with pytest.raises(vivum.UsageError, match="closed"):
        topic.send(b"x")


def test_errors_come_to_the_thread_that_caused_them(domain_name: str) -> None:
    with vivum.sync.connect(domain_name) as node:
        node.enter("/a", bytes)
        with pytest.raises(vivum.TypeMismatch):
            node.enter("/a", bytes, guarantee=vivum.BEST_EFFORT)
        with pytest.raises(vivum.NoServiceError):
            vivum.sync.connect(domain_name + " nobody", embedded=False, timeout_s=0.2)


def test_a_callback_runs_in_the_background_and_must_not_call_back(domain_name: str) -> None:
    with vivum.sync.connect(domain_name) as node:
        topic = node.enter("/a", bytes)
        ended = threading.Event()

        def take(event: vivum.TopicEvent[bytes]) -> None:
            for call in (lambda: topic.send(b"again"), node.close):
                with pytest.raises(vivum.UsageError, match="must not call back"):
                    call()
            ended.set()

        topic.on(take)
        topic.send(b"x")
        assert ended.wait(TIMEOUT_S)


@pytest.mark.parametrize("what", ["topic", "node", "subscription"])
def test_what_a_thread_asks_about_a_node_is_looked_up_between_callbacks_of_that_node(
    domain_name: str, what: str
) -> None:
    """`statistics` handed collected messages to the node from the caller's thread, in the middle of a callback."""
    with vivum.sync.connect(domain_name) as node, node.subscribe("/s/*", bytes) as subscription:
        topic = node.enter("/a", bytes)
        asks: dict[str, Callable[[], object]] = {
            "topic": lambda: topic.statistics().sent,
            "node": lambda: node.statistics().member,
            "subscription": lambda: subscription.topics,
        }
        collected, may_go_on = threading.Event(), threading.Event()

        def collect(event: vivum.TopicEvent[bytes]) -> None:
            if event.value == b"start":
                for number in range(10):
                    assert topic._topic.try_send(b"%d" % number)
                assert len(topic._topic._seat._run or ()) > 1
                collected.set()
                assert may_go_on.wait(TIMEOUT_S)

        topic.on(collect)
        starting = threading.Thread(target=lambda: topic.send(b"start"))
        starting.start()
        assert collected.wait(TIMEOUT_S)
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(asks[what]()))
        asking.start()
        while asking.is_alive() and not node._thread._requests:
            pass
        early = list(answers)
        may_go_on.set()
        assert not early
        asking.join(TIMEOUT_S)
        starting.join(TIMEOUT_S)
        assert answers == [{"topic": 11, "node": node.member, "subscription": ()}[what]]


def test_statistics_can_be_read_in_a_callback_and_after_the_end(domain_name: str) -> None:
    with vivum.sync.connect(domain_name) as node:
        topic = node.enter("/a", bytes)
        told: list[int] = []
        ended = threading.Event()

        def take(event: vivum.TopicEvent[bytes]) -> None:
            told.append(topic.statistics().delivered)
            ended.set()

        topic.on(take)
        topic.send(b"x")
        assert ended.wait(TIMEOUT_S)
    assert told == [1]
    assert topic.statistics().sent == 1
    assert node.statistics().topics == 0


@pytest.mark.parametrize("method", ["next_events", "next_batches"])
def test_what_was_taken_just_as_the_time_to_wait_for_it_was_over_is_read_next(
    domain_name: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was lost: the result of a call that nobody waits for any more was dropped."""
    take = getattr(Reader, method)
    is_over = threading.Event()

    async def take_late(reader: Reader, batches_max: int) -> object:
        found = await take(reader, batches_max)
        assert is_over.wait(TIMEOUT_S)
        return found

    monkeypatch.setattr(Reader, method, take_late)
    with vivum.sync.connect(domain_name) as node:
        topic = node.enter("/a", bytes)
        topic.send_many([b"1", b"2"])
        topic.flush(TIMEOUT_S)
        with pytest.raises(TimeoutError):
            topic.receive(0.01) if method == "next_events" else topic._fill_batches(0.01)
        is_over.set()
        # What is sent now ends the wait, also if the others were lost.
        topic.send(b"3")
        if method == "next_events":
            assert [event.value for event in islice(topic, 3)] == [b"1", b"2", b"3"]
        else:
            assert [payload for batch in islice(topic.batches(), 2) for payload in batch.payloads] == [b"1", b"2", b"3"]
