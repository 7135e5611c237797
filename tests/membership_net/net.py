"""A small deterministic world: one service, many clients, a link that loses, doubles and delays at random.

Virtual time; one seed decides everything. Clients are fed through real gates and real bytes.
"""

from collections import Counter
from heapq import heappop, heappush
from random import Random

from vivum.core.errors import DecodeError
from vivum.core.ids import Endpoint, GroupId, Incarnation, Member, NodeId
from vivum.core.machine import ROOM_BYTES_UNLIMITED
from vivum.core.ranges import RangeSet
from vivum.core.time import MICROSECOND, MILLISECOND, SECOND
from vivum.observe.counters import Counters
from vivum.protocols.membership.client.changes import ConfigurationChanged, Removed, Welcomed
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.membership.service.machine import ServiceMachine
from vivum.protocols.membership.service.role import ServiceRole
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.protocols.membership.settings import ClientSettings, ServiceSettings
from vivum.wire.codec import split
from vivum.wire.control import decode_control
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind, kind_name
from vivum.wire.standby import ServiceStatus

DOMAIN = 7
SERVICE = Endpoint("service", 1)


class Net:
    """The world. `loss`, `duplication` and `delay_ns_max` may be changed at any time; `cut` are ends without a link."""

    def __init__(
        self,
        seed: int = 0,
        service_settings: ServiceSettings | None = None,
        client_settings: ClientSettings | None = None,
    ):
        self.rng = Random(seed)
        self.now_ns = 0
        self.loss = self.duplication = 0.0
        self.delay_ns_min = 50 * MICROSECOND
        self.delay_ns_max = 200 * MICROSECOND
        self.cut: set[Endpoint] = set()
        self.drop = lambda source, destination, data: False
        self.client_settings = client_settings
        self.service_gate = Gate(DOMAIN, Counters(), Member(NodeId(0), Incarnation(0)))
        settings = service_settings or ServiceSettings(standbys=0)
        self.home = ServiceRole(self.service_gate, None, settings)
        self.home.begin(Member(NodeId(1_000_000), Incarnation(1)), 0, 0)
        self.machine = self.home.serving
        self.service = self.machine.service
        self.roles: dict[Endpoint, ServiceRole] = {}
        self.is_service_up = True
        self.seeds: list[Endpoint] = []
        self.clients: dict[Endpoint, MembershipClient] = {}
        self.gates: dict[Endpoint, Gate] = {}
        self.changes: dict[MembershipClient, list] = {}
        self.bytes: Counter[str] = Counter()
        self.frames: Counter[str] = Counter()
        self.watched = range(0)
        """Groups that are compared with the oracle at every client and every epoch."""
        self._truth: dict[int, dict[int, tuple[int, tuple[Member, ...]]]] = {0: {}}
        self._regions_with: dict[ConfigurationService, dict[int, set[tuple[int, int]]]] = {}
        self._last: dict[ConfigurationService, int] = {}
        self.views_of: dict[Member, list[tuple[int, int]]] = {}
        """Region views that each life was ever a member of, in order, by the service's own list."""
        self._paused: dict[Endpoint, tuple[MembershipClient, list]] = {}
        self._packets: list = []
        self._order = 0
        self._names = 0

    def add(
        self, host: str, wanted: int = 0, name: str | None = None, start: bool = True, seeds=()
    ) -> MembershipClient:
        """A new process on a host; one that was there before dies without a word."""
        endpoint = Endpoint(host, 1)
        self._names += 1
        gate = Gate(DOMAIN, Counters(), Member(NodeId(0), Incarnation(0)))
        client = MembershipClient(
            name or f"{host}#{self._names}", NodeId(wanted), endpoint, [SERVICE, *(seeds or self.seeds)], gate,
            Random(self.rng.random()), self.client_settings,
        )  # fmt: skip
        self.clients[endpoint] = client
        self.gates[endpoint] = gate
        if self.machine.settings.standbys:
            self.roles[endpoint] = ServiceRole(gate, client, self.machine.settings)
        self.changes[client] = []
        if start:
            client.start(self.now_ns)
            self._collect(endpoint)
        return client

    def kill(self, host: str) -> None:
        """The process on a host dies."""
        del self.clients[Endpoint(host, 1)]
        self.roles.pop(Endpoint(host, 1), None)

    def pause(self, host: str) -> None:
        """The process on a host stops for a while; what arrives waits in its socket."""
        endpoint = Endpoint(host, 1)
        self._paused[endpoint] = (self.clients.pop(endpoint), [])

    def resume(self, host: str) -> None:
        """It goes on, first with what arrived meanwhile."""
        endpoint = Endpoint(host, 1)
        self.clients[endpoint], waiting = self._paused.pop(endpoint)
        for source, data in waiting:
            self._order += 1
            heappush(self._packets, (self.now_ns, self._order, source, endpoint, data))

    def subscribe(self, client: MembershipClient, *ranges: tuple[int, int]) -> None:
        """Ask for groups."""
        client.subscribe(self.now_ns, RangeSet(ranges))
        self._collect_all()

    def unsubscribe(self, client: MembershipClient, *ranges: tuple[int, int]) -> None:
        """Ask to be out of groups."""
        client.unsubscribe(self.now_ns, RangeSet(ranges))
        self._collect_all()

    def send(self, source: Endpoint, destination: Endpoint, data: bytes) -> None:
        """Put a datagram on the link, whoever made it."""
        kind = self._name_of(data)
        self.frames[kind] += 1
        self.bytes[kind] += len(data)
        if source in self.cut or destination in self.cut or self.drop(source, destination, data):
            return
        copies = 2 if self.rng.random() < self.duplication else 1
        for _ in range(copies):
            if self.rng.random() >= self.loss:
                delay_ns = self.rng.randint(self.delay_ns_min, self.delay_ns_max)
                self._order += 1
                heappush(self._packets, (self.now_ns + delay_ns, self._order, source, destination, data))

    @staticmethod
    def _name_of(data: bytes) -> str:
        kind = kind_name(data)
        if kind == "CONFIGURATION":
            try:
                (frame,) = split(data)
                # Signs of life are counted apart from what there is to tell.
                return "STATUS" if isinstance(decode_control(frame), ServiceStatus) else kind
            except DecodeError:
                return kind
        return kind

    def run_for(self, duration_ns: int) -> None:
        """Let time pass."""
        self._collect_all()
        end_ns = self.now_ns + duration_ns
        while (at_ns := self._next_ns()) is not None and at_ns <= end_ns:
            self.now_ns = max(self.now_ns, at_ns)
            self._step()
        self.now_ns = end_ns

    def settle(self, duration_ns: int = 30 * SECOND) -> None:
        """Heal the link and let everybody come to rest."""
        self.loss = self.duplication = 0.0
        self.cut.clear()
        self.run_for(duration_ns)

    def _next_ns(self) -> int | None:
        times = [each.next_deadline_ns() for each in (*self.clients.values(), *self.roles.values())]
        if self.is_service_up:
            times.append(self.home.next_deadline_ns())
        if self._packets:
            times.append(self._packets[0][0])
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    def _step(self) -> None:
        now_ns = self.now_ns
        while self._packets and self._packets[0][0] <= now_ns:
            _, _, source, destination, data = heappop(self._packets)
            if destination == SERVICE and not self.is_service_up:
                continue
            if destination == SERVICE:
                for frame in self.service_gate.open(now_ns, source, data):
                    self.home.on_frame(now_ns, source, frame)
            elif destination in self.clients:
                for frame in self.gates[destination].open(now_ns, source, data):
                    if frame.kind == Kind.CONFIGURATION:
                        self.clients[destination].on_frame(now_ns, source, frame)
                    elif destination in self.roles:
                        self.roles[destination].on_frame(now_ns, source, frame)
            elif destination in self._paused:
                self._paused[destination][1].append((source, data))
        if self.is_service_up:
            self.home.on_timer(now_ns)
        for role in self.roles.values():
            role.on_timer(now_ns)
        for _, machine in self.serving():
            self._note_truth(machine.service)
        for client in self.clients.values():
            deadline_ns = client.next_deadline_ns()
            if deadline_ns is not None and deadline_ns <= now_ns:
                client.on_timer(now_ns)
        self._collect_all()

    def _collect_all(self) -> None:
        for endpoint in list(self.clients):
            self._collect(endpoint)
        while self.is_service_up and (frames := self.home.make_frames(ROOM_BYTES_UNLIMITED)):
            for datagram in frames:
                self.send(SERVICE, datagram.destination, datagram.data)
        for endpoint, role in self.roles.items():
            while endpoint in self.clients and (frames := role.make_frames(ROOM_BYTES_UNLIMITED)):
                for datagram in frames:
                    self.send(endpoint, datagram.destination, datagram.data)

    def kill_service(self) -> None:
        """The process of the service dies."""
        self.is_service_up = False

    def serving(self) -> list[tuple[Endpoint, ServiceMachine]]:
        """List those who serve, the lowest term first."""
        found = [(SERVICE, self.machine)] if self.is_service_up and self.home.serving is not None else []
        found += [(where, role.serving) for where, role in self.roles.items() if role.serving is not None]
        return sorted(found, key=lambda pair: pair[1].term)

    def follow_service(self) -> None:
        """Compare from now on with the service of the highest term."""
        self.service = self.serving()[-1][1].service

    def _collect(self, endpoint: Endpoint) -> None:
        client = self.clients[endpoint]
        changes = client.take_changes()
        self.changes[client] += changes
        if changes:
            self._check_truth(client)
        for datagram in client.make_datagrams(self.now_ns):
            self.send(endpoint, datagram.destination, datagram.data)

    # What is true, found in the dumbest way.

    def true_members(self, group: int) -> tuple[Member, ...]:
        """Members of a group by the service's own list of lives, oldest first."""
        lives = sorted(self.service.lives.values(), key=lambda life: life.age)
        return tuple(life.member for life in lives if group in life.groups)

    def _note_truth(self, service: ConfigurationService) -> None:
        """Number the views of watched groups by comparing everything with everything."""
        epoch = service.epoch
        if service not in self._last:
            # A copy that took over: it goes on from the last epoch of which it knows.
            self._last[service] = service.ends[-1] if service.ends else 0
            self._regions_with[service] = {group: self._views_with(service, group) for group in self.watched}
            if not service.ends:
                self._regions_with[service] = {}
        if self._last[service] == epoch:
            return
        assert epoch not in self._truth, f"two services made epoch {epoch}"
        truth = dict(self._truth[self._last[service]])
        self._last[service] = epoch
        for group in self.watched:
            now = self._views_with(service, group)
            if now != self._regions_with[service].get(group, set()):
                self._regions_with[service][group] = now
                regions = [each for each in service.regions.all() if group in each.groups]
                placed = [(each, *pair) for each in regions for pair in each.by_age]
                members = sorted(
                    (age, member)
                    for region, age, member in placed
                    if group in RangeSet.from_bounds(region.placements[member].own_groups)
                )
                truth[group] = (epoch, tuple(member for _, member in members))
        self._truth[epoch] = truth
        for region in service.regions.all():
            if region.epoch == epoch:
                for member in region.members:
                    self.views_of.setdefault(member, []).append((region.region, epoch))

    @staticmethod
    def _views_with(service: ConfigurationService, group: int) -> set[tuple[int, int]]:
        return {(each.region, each.epoch) for each in service.regions.all() if group in each.groups}

    def _check_truth(self, client: MembershipClient) -> None:
        truth = self._truth[client.epoch]
        for group in self.watched:
            if group in client.groups:
                assert (client.group_view(GroupId(group)), client.members_of(GroupId(group))) == truth[group]

    def assert_saw_every_view(self, client: MembershipClient) -> None:
        """Every life saw all region views that it was ever a member of, in order, up to where it stood."""
        member, seen, epoch = None, [], 0
        for change in [*self.changes[client], None]:
            match change:
                case Welcomed():
                    member, seen, epoch = change.member, [], 0
                case ConfigurationChanged():
                    assert all(each.view > epoch for each in change.passed)
                    now = [each for each in change.after.values() if each is not None and member in each.members]
                    seen += [(each.region, each.view) for each in (*change.passed, *now) if member in each.members]
                    epoch = change.epoch
                case Removed() | None if member is not None:
                    assert seen == [view for view in self.views_of.get(member, []) if view[1] <= epoch]
                    member = None

    def assert_agreement(self) -> None:
        """Every client stands where the service does, and all derive the same group views."""
        views: dict[int, set[int]] = {}
        for client in self.clients.values():
            if client.member is None:
                continue
            life = self.service.life_of(client.member)
            assert life is not None, f"{client.member} thinks that it is in the domain"
            assert client.groups == life.groups == client.wanted_groups
            region = self.service.regions.region_of(client.member)
            near = [] if region is None else self.service.regions.near(region)
            assert {each.region: (each.epoch, each.members, each.key) for each in near} == {
                each.region: (each.view, each.members, each.groups) for each in client.regions.values()
            }
            for group in client.groups:
                assert client.members_of(GroupId(group)) == self.true_members(group)
                views.setdefault(group, set()).add(client.group_view(GroupId(group)))
                for member in client.members_of(GroupId(group)):
                    assert client.endpoints[member.node] == self.service.lives[member.node].endpoint
        for group, numbers in views.items():
            assert len(numbers) == 1, f"group {group} has views {numbers}"


__all__ = ["DOMAIN", "MILLISECOND", "SECOND", "SERVICE", "Net"]
