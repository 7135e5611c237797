"""The directory of topics and its client, without sockets."""

from effects import datagrams, events, take
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.ranges import RangeSet
from vivum.core.time import MILLISECOND, SECOND
from vivum.observe.counters import Counters
from vivum.protocols.directory.client import (
    AskAnew,
    BrowseTopics,
    CallRoll,
    DirectoryClient,
    EnterTopics,
    ForgetRequest,
    NodesListed,
    TopicsEntered,
    TopicsListed,
)
from vivum.protocols.directory.machine import DirectoryMachine
from vivum.protocols.directory.settings import DirectorySettings
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.wire.codec import split
from vivum.wire.directory import TopicEntry
from vivum.wire.gate import Gate, domain_tag

DOMAIN = domain_tag("test")
SERVICE, NODE = Endpoint("service", 1), Endpoint("node", 1)


class Talk:
    """A directory and one client, whose datagrams arrive at once unless the link is cut."""

    def __init__(self, **settings) -> None:
        self.now_ns = SECOND
        self.is_cut = False
        self.service: ConfigurationService | None = ConfigurationService()
        self.term = 1 << 16
        self.life = self.service.join("a process", NodeId(0), NODE)
        self.counters = Counters()
        gate = Gate(DOMAIN, self.counters, Member(NodeId(9), Incarnation(1)))
        chosen = DirectorySettings(**settings)
        self.directory = DirectoryMachine(
            lambda: None if self.service is None else (self.service, self.term), gate, chosen
        )
        self.client = DirectoryClient(lambda: SERVICE, lambda: self.life.member, gate, chosen)
        self.events: list = []

    def do(self, command) -> list:
        self.client.submit(self.now_ns, command)
        return self.exchange()

    def wait(self, lasts_ns: int) -> list:
        self.now_ns += lasts_ns
        self.client.on_timer(self.now_ns)
        return self.exchange()

    def exchange(self) -> list:
        self.events = []
        while True:
            asked = take(self.client)
            if not asked:
                return self.events
            self.events += events(asked)
            for each in datagrams(asked) if not self.is_cut else ():
                assert len(each.data) < 60_000
                self.directory.on_frame(self.now_ns, NODE, split(each.data)[0])
                self.tell()

    def tell(self) -> None:
        for each in datagrams(take(self.directory)):
            assert len(each.data) < 60_000
            self.client.on_frame(self.now_ns, SERVICE, split(each.data)[0])


def entries(*names: str, schema: str = '"bytes"') -> list[TopicEntry]:
    return [TopicEntry(name, schema, "reliable") for name in names]


def records(told: list) -> list:
    return [record for event in told for record in event.topics]


def test_names_get_neighbouring_groups_and_keep_them():
    talk = Talk()
    first = records(talk.do(EnterTopics(1, entries("/a", "/b", "/c"))))
    groups = [each.group for each in first]
    assert groups == list(range(groups[0], groups[0] + 3))
    again = records(talk.do(EnterTopics(2, entries("/c", "/a"))))
    assert {each.name: each.group for each in again} == {"/a": groups[0], "/c": groups[2]}


def test_the_first_creator_s_type_is_what_later_ones_are_told():
    talk = Talk()
    talk.do(EnterTopics(1, entries("/a", schema="first")))
    (record,) = records(talk.do(EnterTopics(2, entries("/a", schema="second"))))
    assert record.schema == "first"


def test_thousands_of_names_go_in_requests_that_fit_a_frame():
    talk = Talk()
    names = [f"/topics/{number}" for number in range(8192)]
    found = records(talk.do(EnterTopics(1, entries(*names, schema="x" * 200))))
    assert [each.name for each in found] == names
    bounds = RangeSet([(each.group, each.group + 1) for each in found])
    assert bounds.range_count == 1
    listed = talk.do(BrowseTopics(2, "/topics/*"))
    assert len(records(listed)) == 8192
    assert [each.is_last for each in listed][-1]


def test_a_lost_request_is_asked_again_until_it_is_answered_or_forgotten():
    talk = Talk()
    talk.is_cut = True
    assert talk.do(EnterTopics(1, entries("/a"))) == []
    assert talk.wait(100 * MILLISECOND) == []
    talk.is_cut = False
    (event,) = talk.wait(200 * MILLISECOND)
    assert isinstance(event, TopicsEntered)
    assert talk.client.next_deadline_ns() is None
    talk.is_cut = True
    talk.do(EnterTopics(2, entries("/b")))
    talk.do(ForgetRequest(2))
    assert talk.client.next_deadline_ns() is None


def test_a_watcher_that_missed_news_gets_them_with_the_next():
    talk = Talk()
    talk.do(BrowseTopics(2, "/swx/*", watch=True))
    talk.directory.on_frame(talk.now_ns, NODE, split(enter_frame(talk, "/swx/a"))[0])
    # Told, and lost on the way.
    assert take(talk.directory)
    talk.directory.on_frame(talk.now_ns, NODE, split(enter_frame(talk, "/swx/b"))[0])
    talk.tell()
    assert [each.name for each in records(talk.exchange())] == ["/swx/a", "/swx/b"]


def test_a_watcher_is_told_of_new_topics_at_once_and_asks_again_in_case_that_was_lost():
    talk = Talk()
    talk.do(EnterTopics(1, entries("/swx/a")))
    (event,) = talk.do(BrowseTopics(2, "/swx/*", watch=True))
    assert [each.name for each in event.topics] == ["/swx/a"]
    told = talk.do(EnterTopics(3, entries("/swx/b", "/other/c")))
    assert [each.name for event in told if isinstance(event, TopicsListed) for each in event.topics] == ["/swx/b"]
    # The word of a new topic is lost: the next question finds it.
    talk.directory.on_frame(talk.now_ns, NODE, split(enter_frame(talk, "/swx/d"))[0])
    take(talk.directory)
    told = talk.wait(2 * SECOND)
    assert [each.name for each in records(told)] == ["/swx/d"]


def test_a_listing_that_comes_twice_is_told_once():
    """Live seed 382: the network doubled the word of a new topic, and its pattern was entered twice."""
    talk = Talk()
    talk.do(BrowseTopics(2, "/swx/*", watch=True))
    talk.directory.on_frame(talk.now_ns, NODE, split(enter_frame(talk, "/swx/a"))[0])
    for each in datagrams(take(talk.directory)):
        for _ in range(2):
            talk.client.on_frame(talk.now_ns, SERVICE, split(each.data)[0])
    assert [each.name for each in records(talk.exchange())] == ["/swx/a"]


def enter_frame(talk: Talk, name: str) -> bytes:
    other = DirectoryClient(lambda: SERVICE, lambda: talk.life.member, Gate(DOMAIN, Counters(), talk.life.member))
    other.submit(talk.now_ns, EnterTopics(99, entries(name)))
    (datagram,) = datagrams(take(other))
    return datagram.data


def test_the_roll_lists_all_nodes():
    talk = Talk()
    assert talk.service is not None
    for number in range(500):
        talk.service.join(f"process {number} {'x' * 100}", NodeId(0), Endpoint("host", number + 2))
    told = talk.do(CallRoll(1))
    nodes = [record for event in told if isinstance(event, NodesListed) for record in event.nodes]
    assert [each.node for each in nodes] == list(range(1, 502))
    assert len(told) > 1, "they do not fit one frame"


def test_only_current_lives_are_answered():
    talk = Talk()
    assert talk.service is not None
    talk.service.leave(talk.life)
    assert talk.do(EnterTopics(1, entries("/a"))) == []
    assert talk.counters.frames_refused_state == 1
    talk.service = None
    assert talk.wait(SECOND) == []


def test_a_directory_of_a_later_term_learns_groups_from_nodes_and_gives_others():
    talk = Talk()
    (before,) = records(talk.do(EnterTopics(1, entries("/a"))))
    talk.do(BrowseTopics(2, "/*", watch=True))
    talk.service, talk.term = ConfigurationService(), 2 << 16
    talk.life = talk.service.join("a process", NodeId(0), NODE)
    talk.do(AskAnew())
    fresh = records([e for e in talk.do(EnterTopics(3, entries("/b"))) if isinstance(e, TopicsEntered)])
    assert fresh[0].group != before.group
    known = TopicEntry("/a", '"bytes"', "reliable", before.group)
    (again,) = records([e for e in talk.do(EnterTopics(4, [known])) if isinstance(e, TopicsEntered)])
    assert again.group == before.group
    taken = TopicEntry("/c", '"bytes"', "reliable", before.group)
    (other,) = records([e for e in talk.do(EnterTopics(5, [taken])) if isinstance(e, TopicsEntered)])
    assert other.group not in (before.group, fresh[0].group), "a group has one name"


def test_at_the_limit_topics_without_members_make_room_and_others_do_not():
    talk = Talk(topics_max=2)
    assert talk.service is not None
    first = records(talk.do(EnterTopics(1, entries("/a", "/b"))))
    talk.service.subscribe(talk.life, 1, RangeSet([(first[0].group, first[0].group + 1)]), RangeSet())
    assert [each.name for each in records(talk.do(EnterTopics(2, entries("/c"))))] == ["/c"]
    assert {each.name for each in records(talk.do(BrowseTopics(3, "/**")))} == {"/a", "/c"}
    group = records(talk.do(BrowseTopics(4, "/c")))[0].group
    talk.service.subscribe(talk.life, 2, RangeSet([(group, group + 1)]), RangeSet())
    (event,) = talk.do(EnterTopics(5, entries("/d")))
    assert "topics_max=2" in event.refused
