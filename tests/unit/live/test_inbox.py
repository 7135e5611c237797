"""What waits for a reader, and what happens at the limit."""

import asyncio

import pytest

from vivum.core.errors import UsageError
from vivum.core.ids import GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import Delivery
from vivum.live.event import TopicView
from vivum.live.failures import MissedMessages, missed_handler
from vivum.live.inbox import Inbox, estimated_bytes


def delivery(*payloads: bytes, first: int = 0) -> Delivery:
    return Delivery(GroupId(1), Member(NodeId(1), Incarnation(1)), first, list(payloads), ViewNumber(1), 0)


def test_a_full_inbox_counts_what_it_does_not_keep_and_tells_it_once_at_its_place():
    inbox = Inbox("/a", 1000, drops_oldest=False)
    inbox.put(delivery(bytes(600)))
    inbox.put(delivery(bytes(600), bytes(600)))
    inbox.put(delivery(bytes(600)))
    assert inbox.take() is not None
    with pytest.raises(MissedMessages) as told:
        inbox.take()
    assert told.value.count == inbox.missed == 3
    assert inbox.take() is None
    assert inbox.size == 0
    inbox.put(delivery(b"goes on"))
    assert inbox.take() is not None


def test_one_message_larger_than_the_limit_is_kept_when_nothing_else_is():
    inbox = Inbox("/a", 1000, drops_oldest=False)
    inbox.put(delivery(bytes(5000)))
    assert inbox.take() is not None


def test_an_inbox_that_drops_the_oldest_keeps_the_newest():
    inbox = Inbox("/a", 1000, drops_oldest=True)
    for number in range(10):
        inbox.put(delivery(bytes(300), first=number))
    kept = []
    while (each := inbox.take()) is not None:
        kept.append(each.first_sequence)
    assert kept == [8, 9]
    assert inbox.missed == 8
    inbox.interrupt(MissedMessages("a gap", 5))
    assert inbox.take() is None
    assert inbox.missed == 13


def test_the_estimate_is_exact_for_short_runs_and_right_for_even_long_ones():
    assert estimated_bytes(delivery(b"", bytes(10))) == 10 + 2 * 64
    assert estimated_bytes(delivery(*[bytes(100)] * 1000)) == 1000 * 164


def test_two_readers_at_once_are_refused():
    async def scenario() -> None:
        inbox = Inbox("/a", 1000, drops_oldest=False)
        first = asyncio.create_task(inbox.wait())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="two tasks read"):
            await inbox.wait()
        inbox.close()
        assert await first is False

    asyncio.run(scenario())


def view(number: int) -> TopicView:
    return TopicView("/a", number, (), (), ())


def test_a_view_waits_at_its_place_between_messages_for_a_reader_that_asked() -> None:
    inbox = Inbox("/a", 1000, drops_oldest=False)
    inbox.on_view(view(1))
    assert inbox.take() is None
    inbox.wants_views = True
    inbox.put(delivery(b"before"))
    inbox.on_view(view(2))
    inbox.put(delivery(b"after", first=1))
    assert [getattr(inbox.take(), "number", None) for _ in range(3)] == [None, 2, None]
    assert inbox.size == 0


def test_views_are_bounded_as_messages_are() -> None:
    inbox = Inbox("/a", 1000, drops_oldest=False)
    inbox.wants_views = True
    for number in range(100):
        inbox.on_view(view(number))
    assert inbox.size <= 1000
    waiting = len(inbox)
    for _ in range(waiting - 1):
        assert inbox.take() is not None
    with pytest.raises(MissedMessages, match=r"^views of /a came"):
        inbox.take()


def test_errors_are_bounded_as_messages_are_and_none_is_forgotten() -> None:
    inbox = Inbox("/a", 2000, drops_oldest=False)
    for number in range(1000):
        inbox.interrupt(MissedMessages(f"gap {number}", 2))
    assert len(inbox) <= 5
    told = []
    while inbox:
        with pytest.raises(MissedMessages) as error:
            inbox.take()
        told.append(error.value)
    assert sum(each.count or 0 for each in told) == inbox.missed == 2000
    assert str(told[-1]) == "gap 999"
    assert inbox.size == 0


def test_the_view_that_a_reader_begins_with_comes_before_the_messages_that_wait():
    # Found by chaos between hosts: messages that came between `enter` and `with_views` were read before any view.
    inbox = Inbox("/a", 1000, drops_oldest=False)
    inbox.put(delivery(b"sent in view 1"))
    inbox.begin_views(TopicView("/a", 1, (), (), ()))
    assert isinstance(inbox.take(), TopicView)
    assert isinstance(inbox.take(), Delivery)
    assert inbox.size == 0


def test_the_rest_of_a_run_that_was_begun_comes_behind_the_view_that_a_reader_begins_with():
    """The reader had it already, and came to the view when it was through with it."""
    inbox = Inbox("/a", 1000, drops_oldest=False)
    inbox.put(delivery(b"another run"))
    inbox.begin_views(TopicView("/a", 1, (), (), ()), delivery(b"half", b"a run"))
    assert isinstance(inbox.take(), TopicView)
    assert [inbox.take().payloads for _ in range(2)] == [[b"half", b"a run"], [b"another run"]]
    assert inbox.size == 0


def test_the_rest_of_a_run_of_an_earlier_life_stays_before_the_end_of_that_life():
    inbox = Inbox("/a", 10_000, drops_oldest=False)
    inbox.interrupt(MissedMessages("a life ended", None))
    inbox.begin_views(TopicView("/a", 2, (), (), ()), delivery(b"of the first life"))
    assert isinstance(inbox.take(), Delivery)
    with pytest.raises(MissedMessages):
        inbox.take()
    assert isinstance(inbox.take(), TopicView)


def test_what_waits_of_an_earlier_life_stays_before_the_view_that_a_reader_begins_with():
    inbox = Inbox("/a", 10_000, drops_oldest=False)
    inbox.put(delivery(b"of the first life"))
    inbox.interrupt(MissedMessages("a life ended", None))
    inbox.put(delivery(b"of the second"))
    inbox.begin_views(TopicView("/a", 2, (), (), ()))
    assert isinstance(inbox.take(), Delivery)
    with pytest.raises(MissedMessages):
        inbox.take()
    assert isinstance(inbox.take(), TopicView)
    assert isinstance(inbox.take(), Delivery)


def test_where_messages_are_missing_a_function_is_called_and_reading_goes_on() -> None:
    told: list[MissedMessages] = []
    inbox = Inbox("/a", 1000, drops_oldest=False, on_missed=told.append)
    inbox.interrupt(MissedMessages("first", 2))
    inbox.put(delivery(b"x"))
    inbox.interrupt(MissedMessages("second", None))
    assert isinstance(inbox.take(), Delivery)
    assert [str(each) for each in told] == ["first"]
    assert inbox.take() is None
    assert [each.count for each in told] == [2, None]
    assert inbox.missed == 2


def test_log_writes_one_warning_for_each_place(caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox("/a", 1000, drops_oldest=False, on_missed=missed_handler("log"))
    inbox.interrupt(MissedMessages("3 messages are missing", 3))
    assert inbox.take() is None
    assert [(each.name, each.levelname, each.message) for each in caplog.records] == [
        ("vivum", "WARNING", "3 messages are missing")
    ]


def test_raise_is_the_default_and_other_words_are_refused() -> None:
    assert missed_handler("raise") is None
    with pytest.raises(UsageError, match="on_missed='ignore' is unknown; give 'raise', 'log' or a function"):
        missed_handler("ignore")  # type: ignore[arg-type]
