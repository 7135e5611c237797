"""Messages and their answers over real sockets: at once, in order, while a node polls and others share its loop."""

import asyncio
import select
import time
from collections.abc import Coroutine
from typing import Any

import pytest

import vivum
from vivum.core.ids import Channel
from vivum.core.machine import Datagram
from vivum.runtime.lossy import LossyPort
from vivum.runtime.udp import BATCHED, UdpPort
from vivum.wire.gate import domain_tag

TIMEOUT_S = 30
LONG_NS = 5_000_000_000


def play(scenario: Coroutine[Any, Any, None]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario

    asyncio.run(timed())


# Looking without sleeping.


@pytest.mark.parametrize("compiled", [True, False])
def test_a_port_looks_at_all_its_sockets_and_leaves_its_own_multicasts_out(domain_name: str, compiled: bool) -> None:
    domain = domain_tag(domain_name)
    port, other = UdpPort(domain), UdpPort(domain)
    if not compiled:
        port._receiver = None
    try:
        port.listen(Channel(3))
        assert port.look(0) == []
        port.send([Datagram(Channel(3), b"own")])
        sent = [Datagram(port.endpoint, b"one"), Datagram(Channel(3), b"channel"), Datagram(port.endpoint, b"two")]
        assert not other.send(sent)
        heard = []
        until_ns = time.monotonic_ns() + LONG_NS
        while len(heard) < 3 and time.monotonic_ns() < until_ns:
            heard += port.look(1_000_000)
        assert sorted(heard) == [(other.endpoint, data) for data in (b"channel", b"one", b"two")]
        assert port.look(0) == []
    finally:
        port.close()
        other.close()
    assert port.look(LONG_NS) == []


def test_own_multicasts_do_not_even_wake_their_sender(domain_name: str) -> None:
    domain = domain_tag(domain_name)
    port, other = UdpPort(domain), UdpPort(domain)
    try:
        for each in (port, other):
            each.listen(Channel(3))
        port.send([Datagram(Channel(3), b"1")])
        other.send([Datagram(Channel(3), b"2")])
        # On one machine what was sent first is there first.
        assert select.select([port.sockets[1]], [], [], TIMEOUT_S)[0]
        assert port.sockets[1].recv(10) == b"2"
        assert not select.select([port.sockets[1]], [], [], 0)[0]
        assert other.sockets[1].recv(10) == b"1"
    finally:
        port.close()
        other.close()


@pytest.mark.skipif(not BATCHED, reason="without its compiled part a port looks once")
def test_a_port_looks_for_as_long_as_it_is_told(domain_name: str) -> None:
    port = UdpPort(domain_tag(domain_name))
    try:
        began_ns = time.monotonic_ns()
        assert port.look(3_000_000) == []
        assert time.monotonic_ns() - began_ns >= 3_000_000
    finally:
        port.close()


def test_what_is_sent_alone_is_counted_where_the_system_refuses_it(domain_name: str) -> None:
    port, other = UdpPort(domain_tag(domain_name)), UdpPort(domain_tag(domain_name))
    try:
        assert not port.send([Datagram(other.endpoint, b"known now")])
        assert not port.send([Datagram(other.endpoint, bytes(70_000))])
        assert port.unsendable == 1
    finally:
        port.close()
        other.close()


def test_a_lossy_port_loses_also_what_it_looks_for(domain_name: str) -> None:
    port, other = LossyPort(0.5, domain_tag(domain_name)), UdpPort(domain_tag(domain_name))
    try:
        heard = 0
        for _ in range(200):
            other.send([Datagram(port.endpoint, b"x")])
            until_ns, lost = time.monotonic_ns() + LONG_NS, port.lost_on_purpose
            taken: list[Any] = []
            while not taken and port.lost_on_purpose == lost and time.monotonic_ns() < until_ns:
                taken = port.look(1_000_000)
            heard += len(taken)
        assert heard + port.lost_on_purpose == 200
        assert 50 < heard < 150
    finally:
        port.close()
        other.close()


# Round trips.


async def meet(domain_name: str, **options: Any) -> tuple[vivum.NodeHandle, vivum.NodeHandle]:
    return await vivum.connect(domain_name, **options), await vivum.connect(domain_name, embedded=False, **options)


@pytest.mark.parametrize("poll_us", [0, 200, 10_000])
def test_answers_by_callback_go_back_and_forth_while_others_on_the_loop_are_served(
    domain_name: str, poll_us: int
) -> None:
    async def scenario() -> None:
        first, second = await meet(domain_name, poll_us=poll_us)
        async with first, second:
            ping, pong = await first.enter("/p", bytes, own=False), await second.enter("/p", bytes, own=False)
            await ping.wait_for_members(2)
            done = asyncio.get_running_loop().create_future()
            heard: list[int] = []

            def on_pong(event: vivum.TopicEvent[bytes]) -> None:
                assert pong.try_send(event.value)

            def on_ping(event: vivum.TopicEvent[bytes]) -> None:
                heard.append(int(event.value))
                if len(heard) == 1000:
                    done.set_result(None)
                else:
                    assert ping.try_send(b"%d" % len(heard))

            turns = 0

            async def share() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            late_s: list[float] = []

            async def tick() -> None:
                while True:
                    began = time.monotonic()
                    await asyncio.sleep(0.002)
                    late_s.append(time.monotonic() - began)

            pong.on(on_pong)
            ping.on(on_ping)
            others = [asyncio.create_task(each()) for each in (share, tick)]
            ping.try_send(b"0")
            await done
            for each in others:
                each.cancel()
            assert heard == list(range(1000))
            # At least one turn of the loop for every few answers; how late timers are, the machine decides too.
            assert turns > 100
            assert late_s
            await ping.flush()
            await pong.flush()
            for topic in (ping, pong):
                told = topic.statistics()
                assert (told.sent, told.stable, told.delivered) == (1000, 1000, 2000)

    play(scenario())


def test_answers_of_tasks_go_back_and_forth_and_are_stable_when_flushed(domain_name: str) -> None:
    async def scenario() -> None:
        first, second = await meet(domain_name)
        async with first, second:
            ping, pong = await first.enter("/p", bytes, own=True), await second.enter("/p", bytes, own=False)
            await ping.wait_for_members(2)

            async def answer() -> None:
                async for event in pong:
                    await pong.send(b"re: " + event.value)

            task = asyncio.create_task(answer())
            for number in range(500):
                text = b"%d" % number
                await ping.send(text)
                if number % 100 == 50:
                    await ping.flush()
                    assert ping.statistics().stable == number + 1
                own, answered = await ping.receive(), await ping.receive()
                # Its own message first: an answer to it cannot come before.
                assert (own.value, own.sender) == (text, first.member)
                assert (answered.value, answered.sender) == (b"re: " + text, second.member)
            task.cancel()

    play(scenario())


def test_many_messages_of_one_turn_share_frames_and_keep_their_order(domain_name: str) -> None:
    async def scenario() -> None:
        first, second = await meet(domain_name)
        async with first, second:
            sending, receiving = await first.enter("/p", bytes, own=False), await second.enter("/p", bytes, own=False)
            await sending.wait_for_members(2)
            expected = []
            for turn in range(20):
                before = first.statistics().counters["datagrams_sent"]
                for number in range(100):
                    expected.append(b"%d %d" % (turn, number))
                    assert sending.try_send(expected[-1])
                assert first.statistics().counters["datagrams_sent"] <= before + 1
                await sending.flush()
            heard = [(await receiving.receive()).value for _ in expected]
            assert heard == expected
            # The first of a turn alone, all others together; besides them only what the service and the ring say.
            assert first.statistics().counters["datagrams_sent"] < 20 * 20

    play(scenario())


def test_a_callback_may_answer_one_message_with_many_and_leave_and_close(domain_name: str) -> None:
    async def scenario() -> None:
        first, second = await meet(domain_name)
        async with first, second:
            asking, answering = await first.enter("/p", bytes, own=False), await second.enter("/p", bytes, own=False)
            await asking.wait_for_members(2)

            def answer(event: vivum.TopicEvent[bytes]) -> None:
                for number in range(50):
                    assert answering.try_send(event.value + b" %d" % number)

            answering.on(answer)
            for question in (b"a", b"b", b"c"):
                await asking.send(question)
                heard = [(await asking.receive()).value for _ in range(50)]
                assert heard == [question + b" %d" % number for number in range(50)]
            closed = asyncio.Event()

            def close(_: vivum.TopicEvent[bytes]) -> None:
                answering.try_send(b"last")
                second.close_now()
                closed.set()

            answering.on(close)
            await asking.send(b"go")
            await closed.wait()
            with pytest.raises(vivum.ClosedError):
                answering.try_send(b"too late")

    play(scenario())


# What callbacks may do while answers go back and forth.


@pytest.mark.parametrize("poll_us", [0, 200])
@pytest.mark.parametrize("trouble", ["raises", "sends many", "asks", "diverts", "leaves", "closes"])
def test_a_callback_may_do_anything_in_the_middle_of_a_conversation(
    domain_name: str, poll_us: int, trouble: str
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        raised: list[BaseException] = []
        loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
        first, second = await meet(domain_name, poll_us=poll_us)
        async with first, second:
            ping, pong = await first.enter("/p", bytes, own=False), await second.enter("/p", bytes, own=False)
            await ping.wait_for_members(2)
            await pong.wait_for_members(2)
            done, heard, ends = loop.create_future(), list[int](), trouble in ("leaves", "closes")
            numbers: list[int] = []

            def on_pong(event: vivum.TopicEvent[bytes]) -> None:
                numbers.append(event.sequence)
                if int(event.value) == 150:
                    if trouble == "raises":
                        pong.try_send(event.value)
                        raise ValueError("from the callback")
                    if trouble == "sends many":
                        assert pong.try_send_many([b"-1"] * 5)
                    elif trouble == "asks":
                        assert second.statistics() is not None
                        assert pong.statistics().delivered >= 150
                    elif trouble == "diverts":
                        pong.on(on_pong)
                    elif trouble == "leaves":
                        pong.let_go()
                    elif trouble == "closes":
                        second.close_now()
                    if ends:
                        done.set_result(None)
                if trouble != "raises" or int(event.value) != 150:
                    answered = False
                    try:
                        answered = pong.try_send(event.value)
                    except vivum.VivumError:
                        assert ends
                    assert answered or ends

            def on_ping(event: vivum.TopicEvent[bytes]) -> None:
                if event.value == b"-1":
                    return
                heard.append(int(event.value))
                if len(heard) == 300:
                    done.set_result(None)
                else:
                    assert ping.try_send(b"%d" % len(heard))

            pong.on(on_pong)
            ping.on(on_ping)
            ping.try_send(b"0")
            await done
            count = 151 if ends else 300
            assert numbers == list(range(count))
            if not ends:
                assert heard == list(range(300))
            assert [str(each) for each in raised] == (["from the callback"] if trouble == "raises" else [])

    play(scenario())
