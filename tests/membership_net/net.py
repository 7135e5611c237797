"""A small deterministic world: a service, many nodes with a client and a replica, a link that loses and delays.

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
from vivum.protocols.membership.client.client import ClientState, MembershipClient
from vivum.protocols.membership.service.application import ReplicatedDomain
from vivum.protocols.membership.service.machine import ServiceMachine
from vivum.protocols.membership.service.role import ServiceRole
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.protocols.membership.settings import ClientSettings, ServiceSettings
from vivum.wire.codec import split
from vivum.wire.control import decode_control
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind, kind_name
from vivum.wire.service_log import ServiceStatus

DOMAIN = 7
SERVICE = Endpoint("service", 1)
REFUSED = b""
"""What a computer says when nobody has the port that a datagram is for."""


class Net:
    """The world. `loss`, `duplication` and `delay_ns_max` may be changed at any time; `cut` are ends without a link."""

    def __init__(
        self,
        seed: int = 0,
        service_settings: ServiceSettings | None = None,
        client_settings: ClientSettings | None = None,
    ):
        self.rng = Random(seed)
        self._role_rng = Random(~seed)
        self.now_ns = 0
        self.loss = self.duplication = 0.0
        self.delay_ns_min = 50 * MICROSECOND
        self.delay_ns_max = 200 * MICROSECOND
        self.cut: set[Endpoint] = set()
        self.refuses = False
        """Whether computers say so when a process is gone."""

        self.drop = lambda source, destination, data: False
        self.client_settings = client_settings
        self.service_gate = Gate(DOMAIN, Counters(), Member(NodeId(0), Incarnation(0)))
        self.settings = service_settings or ServiceSettings(replicas=1)
        self.home = ServiceRole(self.service_gate, SERVICE, self._role_rng, None, self.settings)
        self.roles: dict[Endpoint, ServiceRole] = {SERVICE: self.home}
        self._state = self.home.state
        self.seeds: list[Endpoint] = []
        self.clients: dict[Endpoint, MembershipClient] = {}
        self.gates: dict[Endpoint, Gate] = {}
        self.changes: dict[MembershipClient, list] = {}
        self.bytes: Counter[str] = Counter()
        self.frames: Counter[str] = Counter()
        self.watched = range(0)
        """Groups that are compared with the oracle at every client and every epoch."""
        self._truth: dict[int, dict[int, tuple[int, tuple[Member, ...]]]] = {0: {}}
        # By history.
        self._regions_with: dict[int, dict[int, set[tuple[int, int]]]] = {}
        self._last: dict[int, int] = {}
        self.views_of: dict[Member, list[tuple[int, int]]] = {}
        """Region views that each life was ever a member of, in order, by the service's own list."""
        self._paused: dict[Endpoint, tuple[MembershipClient | None, ServiceRole, list]] = {}
        self._packets: list = []
        self._order = 0
        self._names = 0
        self.home.begin(0, is_only=True)
        self._collect_all()

    @property
    def is_service_up(self) -> bool:
        return SERVICE in self.roles

    @property
    def machine(self) -> ServiceMachine:
        """Who speaks for the service: the latest of them."""
        return self.serving()[-1][1]

    @property
    def service(self) -> ConfigurationService:
        """What the service has decided, as far as its latest speaker knows."""
        if serving := self.serving():
            self._state = serving[-1][1].state
        return self._state.service

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
        self.roles[endpoint] = ServiceRole(gate, endpoint, self._role_rng, client, self.settings)
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
        self._paused[endpoint] = (self.clients.pop(endpoint, None), self.roles.pop(endpoint), [])

    def resume(self, host: str) -> None:
        """It goes on, first with what arrived meanwhile."""
        endpoint = Endpoint(host, 1)
        client, self.roles[endpoint], waiting = self._paused.pop(endpoint)
        if client is not None:
            self.clients[endpoint] = client
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
        kind = self._name_of(data) if data else "REFUSED"
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
        if self._packets:
            times.append(self._packets[0][0])
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    def _step(self) -> None:
        now_ns = self.now_ns
        while self._packets and self._packets[0][0] <= now_ns:
            _, _, source, destination, data = heappop(self._packets)
            if data == REFUSED:
                if destination in self.roles:
                    self.roles[destination].on_refused(now_ns, source)
            elif destination in self._paused:
                self._paused[destination][2].append((source, data))
            elif destination in self.roles:
                gate = self.service_gate if destination == SERVICE else self.gates[destination]
                for frame in gate.open(now_ns, source, data):
                    if frame.kind != Kind.CONFIGURATION:
                        self.roles[destination].on_frame(now_ns, source, frame)
                    elif destination in self.clients:
                        self.clients[destination].on_frame(now_ns, source, frame)
            elif self.refuses:
                # The computer lives, and the process does not.
                self.send(destination, source, REFUSED)
        for role in self.roles.values():
            deadline_ns = role.next_deadline_ns()
            if deadline_ns is not None and deadline_ns <= now_ns:
                role.on_timer(now_ns)
        for client in self.clients.values():
            deadline_ns = client.next_deadline_ns()
            if deadline_ns is not None and deadline_ns <= now_ns:
                client.on_timer(now_ns)
        self._collect_all()

    def _collect_all(self) -> None:
        for endpoint in list(self.clients):
            self._collect(endpoint)
        for endpoint, role in list(self.roles.items()):
            client = self.clients.get(endpoint)
            if client is not None and client.state is ClientState.LEFT and not role.history and self.refuses:
                # Nothing keeps its process.
                del self.roles[endpoint]
            while (frames := role.make_frames(ROOM_BYTES_UNLIMITED)) or role.effects:
                # What the replica sends before its record is among the effects.
                frames, role.effects = [*role.effects, *frames], []
                for datagram in frames:
                    self.send(endpoint, datagram.destination, datagram.data)
            if role.serving is not None:
                self._note_truth(role.history, role.serving.state)

    def kill_service(self) -> None:
        """The process of the service dies."""
        del self.roles[SERVICE]

    def serving(self) -> list[tuple[Endpoint, ServiceMachine]]:
        """List those who serve, the lowest term first."""
        found = [(where, role.serving) for where, role in self.roles.items() if role.serving is not None]
        return sorted(found, key=lambda pair: (pair[1].state.founded_ns, pair[1].term))

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

    def _note_truth(self, history: int, state: ReplicatedDomain) -> None:
        """Number the views of watched groups by comparing everything with everything."""
        service = state.service
        epoch = service.epoch
        if history not in self._last:
            self._last[history] = state.parent_epoch
            self._regions_with[history] = {group: self._views_with(service, group) for group in self.watched}
            self._truth.setdefault(epoch, self._truth[state.parent_epoch])
            if state.parent:
                self._last[history] = epoch
        if epoch <= self._last[history]:
            return
        assert epoch not in self._truth, f"two services made epoch {epoch}"
        truth = dict(self._truth[self._last[history]])
        self._last[history] = epoch
        for group in self.watched:
            now = self._views_with(service, group)
            if now != self._regions_with[history].get(group, set()):
                self._regions_with[history][group] = now
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
