"""Topics between nodes of one process, over real sockets: sending, reading, types, views, limits."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

import vivum

TIMEOUT_S = 30


class Quote(vivum.Message):
    symbol: str
    bid: float
    ask: float


def play(scenario: Coroutine[Any, Any, None]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario

    asyncio.run(timed())


def test_typed_values_arrive_with_sender_sequence_view_and_time(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as first, vivum.connect(domain_name) as second:
            sending = await first.enter("/swx/NESN", Quote)
            receiving = await second.enter("/swx/NESN", Quote)
            await sending.wait_for_members(2)
            for number in range(3):
                await sending.send(Quote("NESN", number, number + 0.5))
            await sending.flush()
            for topic in (sending, receiving):
                events = [await topic.receive() for _ in range(3)]
                assert [each.value for each in events] == [Quote("NESN", n, n + 0.5) for n in range(3)]
                assert [each.sequence for each in events] == [0, 1, 2]
                assert {each.sender for each in events} == {first.member}
                assert {each.view for each in events} == {sending.view.number if sending.view else 0}
                assert all(abs(each.time - events[0].time) < TIMEOUT_S for each in events)

    play(scenario())


def test_the_first_creator_fixes_type_and_guarantee(domain_name: str) -> None:
    class Longer(vivum.Message):
        symbol: str
        bid: float
        ask: float
        volume: int = 0

    class Other(vivum.Message):
        symbol: str
        bid: int

    class Demanding(vivum.Message):
        symbol: str
        bid: float
        ask: float
        volume: int

    async def scenario() -> None:
        async with vivum.connect(domain_name) as first, vivum.connect(domain_name) as second:
            old = await first.enter("/swx/NESN", Quote)
            with pytest.raises(vivum.TypeMismatch, match=r"/swx/NESN has type Quote, not bytes"):
                await second.enter("/swx/NESN", bytes)
            with pytest.raises(vivum.TypeMismatch, match="field 2 is bid: float; in Other it is bid: int"):
                await second.enter("/swx/NESN", Other)
            with pytest.raises(vivum.TypeMismatch, match="volume: int is only in Demanding and has no default"):
                await second.enter("/swx/NESN", Demanding)
            with pytest.raises(vivum.TypeMismatch, match="guarantee 'reliable', not 'best_effort'"):
                await second.enter("/swx/NESN", Quote, guarantee=vivum.BEST_EFFORT)
            new = await second.enter("/swx/NESN", Longer)
            await new.wait_for_members(2)
            await new.send(Longer("NESN", 1, 2, 3))
            assert (await old.receive()).value == Quote("NESN", 1, 2)
            await old.send(Quote("NESN", 4, 5))
            assert [(await new.receive()).value for _ in range(2)][1] == Longer("NESN", 4, 5, 0)
            with pytest.raises(vivum.UsageError, match="takes Quote, not bytes"):
                await old.send(b"bytes")  # type: ignore[arg-type]

    play(scenario())


def test_two_domains_do_not_see_each_other(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as here, vivum.connect(domain_name + "'") as there:
            assert here.carries_service
            assert there.carries_service
            ours = await here.enter("/a", bytes)
            theirs = await there.enter("/a", bytes)
            await ours.send(b"ours")
            await theirs.send(b"theirs")
            assert (await ours.receive()).value == b"ours"
            assert (await theirs.receive()).value == b"theirs"
            assert len(await here.nodes()) == len(await there.nodes()) == 1

    play(scenario())


def test_without_a_service_and_without_leave_to_carry_one_connecting_fails_in_one_sentence(domain_name: str) -> None:
    async def scenario() -> None:
        with pytest.raises(
            vivum.NoServiceError, match=r"no configuration service of domain .* within 0.3 s .*vivum up"
        ):
            await vivum.connect(domain_name, embedded=False, timeout_s=0.3)

    play(scenario())


def test_nodes_that_start_at_once_agree_on_one_service(domain_name: str) -> None:
    async def scenario() -> None:
        nodes = await asyncio.gather(*(vivum.connect(domain_name) for _ in range(6)))
        try:
            assert sum(node.carries_service for node in nodes) == 1
            topics = await asyncio.gather(*(node.enter("/a", bytes) for node in nodes))
            await asyncio.gather(*(topic.wait_for_members(6) for topic in topics))
            assert len({topic.members for topic in topics}) == 1
        finally:
            await asyncio.gather(*(node.close() for node in nodes))

    play(scenario())


def test_sending_waits_while_the_queue_is_full_and_nothing_is_lost(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as first, vivum.connect(domain_name) as second:
            sending = await first.enter("/a", bytes, receive=False)
            receiving = await second.enter("/a", bytes)
            await sending.wait_for_members(2)
            payload = bytes(1000)
            accepted = 0
            # No await: nothing can leave meanwhile but what the window takes.
            while sending.try_send(payload):
                accepted += 1
            assert accepted > 100
            assert not sending.try_send(payload)
            waiting = asyncio.create_task(sending.send_many([payload] * 500))
            received = 0
            async for batch in receiving.batches():
                received += len(batch)
                if received == accepted + 500:
                    break
            await waiting
            await sending.flush()
            assert sending.statistics().stable == accepted + 500
            memory = first.statistics().memory
            assert memory.waiting_bytes == memory.sent_bytes == 0

    play(scenario())


def test_a_reader_that_is_cancelled_or_breaks_off_loses_nothing(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as node:
            topic = await node.enter("/a", bytes)
            reading = asyncio.create_task(topic.receive())
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await topic.send_many([b"%d" % number for number in range(10)])
            found = []
            async for event in topic:
                found.append(event.value)
                if len(found) == 3:
                    break
            async for batch in topic.batches():
                found += batch.payloads
                break
            assert found == [b"%d" % number for number in range(10)]

    play(scenario())


def test_a_reader_that_is_too_slow_is_told_how_much_it_missed(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as node:
            strict = await node.enter("/a", bytes, receive_bytes_max=10_000)
            newest = await node.enter("/a", bytes, receive_bytes_max=10_000, drop_oldest=True)
            for number in range(50):
                await strict.send(b"%d " % number + bytes(1000))
            # All are here before reading begins, also where the machine is busy.
            await strict.flush()
            kept = []
            told = None
            try:
                async for event in strict:
                    kept.append(int(event.value.split()[0]))
            except vivum.MissedMessages as error:
                told = error
            assert kept == list(range(len(kept)))
            assert told is not None
            assert "receive_bytes_max" in str(told)
            assert told.count == 50 - len(kept)
            await strict.send(b"after")
            assert (await strict.receive()).value == b"after"
            numbers = []
            while not numbers or numbers[-1] != 49:
                numbers.append(int((await newest.receive()).value.split()[0]))
            assert 5 < len(numbers) < 10
            assert numbers == list(range(50 - len(numbers), 50))
            assert newest.statistics().missed > 0

    play(scenario())


def test_a_subscription_receives_from_topics_that_appear_later(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as first, vivum.connect(domain_name) as second:
            early = await first.enter("/swx/NESN", bytes)
            await first.enter("/swx/deep/er", bytes)
            await first.enter("/swx/typed", Quote)
            async with second.subscribe("/swx/*", bytes) as near, second.subscribe("/swx/**", bytes) as far:
                await near.wait_for_topics(1)
                await far.wait_for_topics(2)
                late = await first.enter("/swx/ROG", bytes)
                assert set(await near.wait_for_topics(2)) == {"/swx/NESN", "/swx/ROG"}
                assert set(await far.wait_for_topics(3)) == {"/swx/NESN", "/swx/deep/er", "/swx/ROG"}
                assert "Quote" in near.passed_over["/swx/typed"]
                await early.wait_for_members(2)
                await late.wait_for_members(2)
                await early.send(b"early")
                await late.send(b"late")
                found = set()
                async for event in near:
                    found.add((event.topic, event.value))
                    if len(found) == 2:
                        break
                assert found == {("/swx/NESN", b"early"), ("/swx/ROG", b"late")}

    play(scenario())


def test_views_are_told_as_they_change(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as first:
            topic = await first.enter("/a", bytes)
            views = topic.views()
            assert (await anext(views)).members == (first.member,)
            second = await vivum.connect(domain_name)
            other = await second.enter("/a", bytes)
            joined = await anext(views)
            assert joined.members == (first.member, second.member) == other.members
            assert joined.joined == (second.member,)
            gone = second.member
            await second.close()
            left = await anext(views)
            assert (left.members, left.left) == ((first.member,), (gone,))
            assert left.number > joined.number
            await views.aclose()  # type: ignore[attr-defined]

    play(scenario())


def test_a_topic_that_is_left_ends_its_readers_and_can_be_entered_again(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as first, vivum.connect(domain_name) as second:
            sending = await first.enter("/a", bytes)
            receiving = await second.enter("/a", bytes)
            await sending.wait_for_members(2)
            await sending.send(b"one")
            await sending.flush()
            await receiving.leave()
            assert [event.value async for event in receiving] == [b"one"]
            with pytest.raises(vivum.ClosedError, match="was left"):
                await receiving.send(b"two")
            again = await second.enter("/a", bytes)
            await sending.wait_for_members(2)
            await sending.send(b"three")
            await again.send(b"four")
            await again.flush()
            assert {(await again.receive()).value for _ in range(2)} == {b"three", b"four"}
            # The same in the life of the sender: numbers go on, so a flush knows what is stable.
            await sending.leave()
            sending = await first.enter("/a", bytes)
            await sending.send(b"five")
            await sending.flush()

    play(scenario())


@pytest.mark.slow
def test_a_thousand_topics_are_entered_at_once_and_all_carry_messages(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as first, vivum.connect(domain_name) as second:
            names = [f"/topics/{number}" for number in range(1000)]
            sending = await first.enter_many(names, bytes, receive=False)
            receiving = await second.enter_many(names, bytes)
            await sending[-1].wait_for_members(2)
            for topic in sending:
                await topic.send(topic.name.encode())
            for topic in receiving:
                assert (await topic.receive()).value == topic.name.encode()
            assert len(await first.topics("/topics/*")) == 1000
            assert {each.members for each in await first.topics("/topics/*")} == {2}

    play(scenario())


def test_large_messages_arrive_whole_and_one_over_the_limit_is_refused(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as first, vivum.connect(domain_name) as second:
            sending = await first.enter("/a", bytes, receive=False)
            receiving = await second.enter("/a", bytes)
            await sending.wait_for_members(2)
            for size in (1 << 20, 10 << 20):
                payload = b"x" * (size - 1) + b"y"
                await sending.send(payload)
                assert (await receiving.receive()).value == payload
            with pytest.raises(vivum.LimitError, match=r"message of 16777217 bytes is over message_bytes_max=16777216"):
                await sending.send(bytes((16 << 20) + 1))
            await sending.send(b"goes on")
            assert (await receiving.receive()).value == b"goes on"

    play(scenario())


def test_best_effort_has_the_same_api(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as first, vivum.connect(domain_name) as second:
            sending = await first.enter("/a", bytes, guarantee=vivum.BEST_EFFORT, own=False)
            receiving = await second.enter("/a", bytes, guarantee=vivum.BEST_EFFORT)
            await sending.wait_for_members(2)
            await receiving.wait_for_members(2)
            payloads = [b"%d" % number for number in range(1000)]
            await sending.send_many(payloads)
            await sending.flush()
            found: list[bytes] = []
            while len(found) < 1000:
                found.append((await receiving.receive()).value)
            assert found == payloads
            assert sending.statistics().queued_bytes == 0

    play(scenario())


@pytest.mark.slow
def test_without_multicast_everybody_gets_its_own_copy(domain_name: str) -> None:
    async def scenario() -> None:
        nodes = [await vivum.connect(domain_name, multicast=False) for _ in range(4)]
        try:
            assert sum(node.carries_service for node in nodes) == 1
            topics = [await node.enter("/a", bytes) for node in nodes]
            for topic in topics:
                await topic.wait_for_members(4)
            await topics[0].send_many([b"%d" % number for number in range(200)])
            for topic in topics:
                assert [(await topic.receive()).value for _ in range(200)] == [b"%d" % n for n in range(200)]
            await topics[0].flush()
        finally:
            for node in nodes:
                await node.close()

    play(scenario())


def test_a_node_is_found_by_seeds(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as first:
            seed = str(first.endpoint)
            async with vivum.connect(domain_name, multicast=False, seeds=[seed], embedded=False) as second:
                topics = [await node.enter("/a", bytes) for node in (first, second)]
                await topics[1].wait_for_members(2)
                await topics[1].send(b"hello")
                assert (await topics[0].receive()).value == b"hello"
        with pytest.raises(vivum.UsageError, match="is not host:port"):
            vivum.connect(domain_name, seeds=["nonsense"])

    play(scenario())


def test_a_callback_gets_everything_and_what_it_raises_does_not_stop_the_node(domain_name: str) -> None:
    async def scenario() -> None:
        raised: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context["exception"]))
        async with vivum.connect(domain_name) as node:
            topic = await node.enter("/a", bytes)
            await topic.send(b"waits")
            found: list[bytes] = []
            ended = asyncio.Event()

            def take(event: vivum.TopicEvent[bytes]) -> None:
                found.append(event.value)
                if event.value == b"last":
                    ended.set()
                if event.value == b"answer me":
                    assert topic.try_send(b"last")
                    raise ValueError("from the callback")

            topic.on(take)
            await topic.send(b"answer me")
            await ended.wait()
            assert found == [b"waits", b"answer me", b"last"]
            assert [str(each) for each in raised] == ["from the callback"]

    play(scenario())


def test_callbacks_are_told_of_missing_messages_by_one_of_their_own_or_by_the_loop(domain_name: str) -> None:
    async def scenario() -> None:
        raised: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context["exception"]))
        async with vivum.connect(domain_name) as node:
            told: list[vivum.MissedMessages] = []
            topics = [await node.enter("/a", bytes, receive_bytes_max=10_000) for _ in range(2)]
            for _ in range(50):
                await topics[0].send(bytes(1000))
            await topics[0].flush()
            counts = [0, 0]

            def count(number: int, batch: vivum.Batch[bytes]) -> None:
                counts[number] += len(batch.payloads)

            # What overran the queue is told first, in its place; what the network could not give, when it is known.
            topics[0].on_batch(lambda batch: count(0, batch), missed=told.append)
            topics[1].on_batch(lambda batch: count(1, batch))
            assert [each.count for each in told] == [50 - counts[0]] == [each.count for each in raised]
            topics[0]._seat.interrupt(vivum.MissedMessages("two are gone", 2))
            assert [str(told[-1]), str(raised[-1])] == ["two are gone"] * 2

    play(scenario())


def test_a_message_of_another_type_is_counted_and_passed_over(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as node:
            topic = await node.enter("/a", Quote)
            topic._seat.try_send([b"\xc1 not msgpack"])
            await topic.send(Quote("NESN", 1, 2))
            assert (await topic.receive()).value == Quote("NESN", 1, 2)
            assert topic.statistics().undecodable == 1

    play(scenario())


def test_wrong_use_is_told_in_one_sentence(domain_name: str) -> None:
    """R2: among others, `send_many(None)` was accepted."""

    async def scenario() -> None:
        async with vivum.connect(domain_name) as node:
            for name, text in (
                ("swx", "begins with /"),
                ("/a//b", "part 2 is ''"),
                ("/a/*", "use node.subscribe"),
                ("/" + "x" * 300, "at most 255 bytes"),
                ("/\udcff", "is not text that can be sent"),
            ):
                with pytest.raises(vivum.UsageError, match=text):
                    await node.enter(name, bytes)
            with pytest.raises(vivum.UsageError, match=r"expected bytes or a subclass of vivum\.Message"):
                await node.enter("/a", str)
            topic = await node.enter("/a", bytes, receive=False)
            with pytest.raises(vivum.UsageError, match="receive=False"):
                await topic.receive()
            with pytest.raises(vivum.UsageError, match="takes bytes, not str"):
                await topic.send_many([b"a", "b"])  # type: ignore[list-item]
            for nothing in (None, 0, 5):
                for send in (topic.send_many, topic.try_send_many):
                    with pytest.raises(vivum.UsageError, match="takes a list of messages, not"):
                        assert await send(nothing) is not True  # type: ignore[arg-type, misc]
            for pattern in ("/\udcff/*", "\udcff"):
                with pytest.raises(vivum.UsageError, match="is not text that can be sent"):
                    node.subscribe(pattern, bytes)
                with pytest.raises(vivum.UsageError, match="is not text that can be sent"):
                    await node.topics(pattern)
            port = node.endpoint.port
            with pytest.raises(vivum.HostError, match="Address already in use; choose another port"):
                await vivum.connect(domain_name, port=port)
        with pytest.raises(vivum.ClosedError, match="was closed"):
            await node.enter("/b", bytes)
        with pytest.raises(vivum.ClosedError, match="was left"):
            await topic.send(b"x")

    play(scenario())


def test_a_list_that_mixes_kinds_of_bytes_is_copied(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as node:
            topic = await node.enter("/a", bytes)
            scratch = bytearray(b"first")
            await topic.send_many([scratch, memoryview(b"second"), b"third"])  # type: ignore[list-item]
            scratch[:] = b"other"
            assert [(await topic.receive()).value for _ in range(3)] == [b"first", b"second", b"third"]

    play(scenario())


def test_when_the_node_that_carries_the_service_leaves_another_takes_over_and_lives_go_on(domain_name: str) -> None:
    async def scenario() -> None:
        carrier = await vivum.connect(domain_name)
        async with vivum.connect(domain_name) as first, vivum.connect(domain_name) as second:
            topics = [await node.enter("/a", bytes) for node in (first, second)]
            await topics[0].wait_for_members(2)
            lives = (first.member, second.member)
            await carrier.close()
            while first.carries_service + second.carries_service != 1:
                await asyncio.sleep(0.01)
            await topics[0].send(b"after")
            assert (await topics[1].receive()).value == b"after"
            third = await vivum.connect(domain_name, embedded=False)
            late = await third.enter("/a", bytes)
            assert len(await late.wait_for_members(3)) == 3
            assert (first.member, second.member) == lives
            assert [each.members for each in await third.topics()] == [3]
            await third.close()

    play(scenario())
