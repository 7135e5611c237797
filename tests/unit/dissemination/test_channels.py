"""Channels open before frames come, and close when no more can."""

from loose_streams import ONE, config
from vivum.core.machine import ChannelClosed, ChannelOpened
from vivum.protocols.dissemination.channels import Channels
from vivum.protocols.dissemination.ways import Means

REGIONS = [config(1, 1, 2, (1, 3)), config(2, 1, 2, (1, 2)), config(3, 1, 2, (1, 2))]


def make_channels() -> Channels:
    return Channels(Means(multicast=True, frame_bytes=1472, spread_channels=256), delay_ns=100, linger_ns=1000)


def test_the_channel_of_a_hybrid_group_is_heard_at_once_and_used_after_a_while() -> None:
    listening = make_channels()
    listening.plan(10, REGIONS[0], REGIONS)
    (opened,) = listening.update(10, ())
    assert isinstance(opened, ChannelOpened)
    assert listening.spread_channel_of(109, ONE) is None
    assert listening.spread_channel_of(110, ONE) == opened.channel
    assert listening.update(110, ()) == []


def test_a_plan_that_stays_does_not_begin_anew() -> None:
    listening = make_channels()
    listening.plan(10, REGIONS[0], REGIONS)
    listening.plan(90, REGIONS[0], REGIONS)
    assert listening.spread_channel_of(110, ONE) is not None


def test_a_channel_that_is_no_longer_planned_stays_open_for_those_who_do_not_know_yet() -> None:
    listening = make_channels()
    listening.plan(0, REGIONS[0], REGIONS)
    (opened,) = listening.update(0, ())
    assert isinstance(opened, ChannelOpened)
    listening.plan(500, REGIONS[0], REGIONS[:1])
    assert listening.spread_channel_of(500, ONE) is None
    assert listening.update(1499, ()) == []
    assert listening.update(1500, ()) == [ChannelClosed(opened.channel)]


def test_the_end_of_a_life_closes_everything() -> None:
    listening = make_channels()
    listening.plan(0, REGIONS[0], REGIONS)
    (opened,) = listening.update(0, ())
    assert isinstance(opened, ChannelOpened)
    listening.forget()
    assert listening.update(1, ()) == [ChannelClosed(opened.channel)]
    assert listening.spread_channel_of(10_000, ONE) is None
