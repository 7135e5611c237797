"""What goes wrong, when: begins and ends the faults of a scenario, and heals everything for the liveness phase."""

from collections.abc import Callable
from typing import Any

from vivum.core.ids import GroupId, NodeId
from vivum.observe.faults import HEALED, Fault
from vivum.observe.trace import FaultInjected, Tracer
from vivum.sim.engine import Network, Scheduler, SimPort
from vivum.sim.host import Host
from vivum.sim.loss import BurstLoss, IndependentLoss
from vivum.sim.scenario import FaultSpec, NetworkSpec

PLAIN_LOSS_MAX = 0.05
"""A network that loses more than this from the beginning is told of as a fault at every node."""


class FaultInjector:
    """Carries out a list of faults. A fault that cannot apply now (a crash of a dead node) does nothing."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        hosts: dict[NodeId, Host],
        service: Host | None,
        stop_ns: int,
        trace: Tracer | None,
        regroup: Callable[[Host, GroupId, bool], None] | None = None,
    ) -> None:
        """Prepare. `regroup` makes the applications on a host leave (False) or join (True) a group."""
        self._scheduler = scheduler
        self._network = network
        self._hosts = hosts
        # Links to the configuration service fail too, and it is on one side of a partition.
        self._service = service
        self._everyone = {**hosts, **({service.node_id: service} if service is not None else {})}
        self._stop_ns = stop_ns
        self._trace = trace
        self._regroup = regroup
        self._healed = False
        self._begin: dict[str, Callable[[FaultSpec, list[Host]], Callable[[], None] | None]] = {
            "crash": self._crash,
            "service_crash": lambda fault, _: self._crash(fault, [] if service is None else [service]),
            "restart": self._restart,
            "pause": self._pause,
            "slow": self._slow,
            "partition": self._partition,
            "one_way": self._one_way,
            "loss": self._loss,
            "burst": self._burst,
            "duplicate": self._duplicate,
            "reorder": self._reorder,
            "leave": lambda fault, hosts: self._change_groups(fault, hosts, joins=False),
            "join": lambda fault, hosts: self._change_groups(fault, hosts, joins=True),
        }

    def tell_of(self, network: NetworkSpec) -> None:
        """Trace what the network loses from the beginning, if it is more than a plain one does."""
        for kind, rate in (("loss", network.loss), ("burst", network.burst_rate)):
            if rate > PLAIN_LOSS_MAX:
                self._note(str(Fault(kind)))

    def schedule(self, fault: FaultSpec) -> None:
        """Put a fault on the agenda."""
        if fault.at < self._stop_ns:
            self._scheduler.at(int(fault.at), self._on_begin, fault)

    def _on_begin(self, fault: FaultSpec) -> None:
        now_ns = self._scheduler.now_ns
        if now_ns >= self._stop_ns:
            return
        chosen = [self._hosts[NodeId(node)] for node in fault.nodes] or list(self._hosts.values())
        self._note(str(_told(fault)))
        end = self._begin[fault.kind](fault, chosen)
        if end is not None and fault.lasts is not None:
            self._scheduler.at(now_ns + fault.lasts, self._on_end, (fault, end))
        if fault.every is not None:
            self._scheduler.at(now_ns + fault.every, self._on_begin, fault)

    def _on_end(self, what: tuple[FaultSpec, Callable[[], None]]) -> None:
        fault, end = what
        if self._healed:
            return
        self._note(_told(fault).end)
        end()

    def heal(self, _: None = None) -> None:
        """End every fault and start every dead host: what is left must now become whole."""
        self._healed = True
        self._note(HEALED)
        for host in self._everyone.values():
            host.port.heal()
            host.wake_up()
            host.slowness = 1
            if host.is_dying:
                host.crash()
            if host.node is None:
                host.start()

    def _note(self, cause: str) -> None:
        if self._trace is not None:
            self._trace(FaultInjected(self._scheduler.now_ns, 0, 0, cause))

    # Each begins a fault and returns how to end it.

    def _crash(self, fault: FaultSpec, hosts: list[Host]) -> Callable[[], None] | None:
        dying = {host: host.incarnation for host in hosts if host.node is not None}
        for host in dying:
            host.crash_after(fault.after)
        if fault.lasts is None:
            return None

        def end() -> None:
            # One that came back meanwhile and died again is dead for another reason.
            again = [host for host, life in dying.items() if host.incarnation == life]
            for host in again:
                # It had not come to its last effect.
                host.crash()
            self._restart(fault, again)

        return end

    def _restart(self, _: FaultSpec, hosts: list[Host]) -> None:
        for host in hosts:
            if host.node is None:
                host.start()

    def _pause(self, fault: FaultSpec, hosts: list[Host]) -> None:
        assert fault.lasts is not None
        for host in hosts:
            host.pause(fault.lasts)

    def _slow(self, fault: FaultSpec, hosts: list[Host]) -> Callable[[], None]:
        # Several at once multiply, so that each ends for itself.
        for host in hosts:
            host.slowness *= fault.factor

        def end() -> None:
            for host in hosts:
                host.slowness //= fault.factor

        return end

    def _partition(self, _: FaultSpec, hosts: list[Host]) -> Callable[[], None]:
        inside = frozenset(host.node_id for host in hosts)
        outside = frozenset(self._everyone.keys() - inside)
        return self._add(
            list(self._everyone.values()),
            lambda port: (port.blocks, outside if port.host.node_id in inside else inside),
        )

    def _one_way(self, _: FaultSpec, hosts: list[Host]) -> Callable[[], None]:
        inside = frozenset(host.node_id for host in hosts)
        outside = [host for host in self._everyone.values() if host.node_id not in inside]
        return self._add(outside, lambda port: (port.blocks, inside))

    def _loss(self, fault: FaultSpec, hosts: list[Host]) -> Callable[[], None]:
        return self._add(hosts, lambda port: (port.loss, IndependentLoss(fault.rate)))

    def _burst(self, fault: FaultSpec, hosts: list[Host]) -> Callable[[], None]:
        return self._add(hosts, lambda port: (port.loss, BurstLoss(fault.rate, fault.length)))

    def _duplicate(self, fault: FaultSpec, hosts: list[Host]) -> Callable[[], None]:
        return self._add(hosts, lambda port: (port.duplicates, fault.rate))

    def _reorder(self, fault: FaultSpec, hosts: list[Host]) -> Callable[[], None]:
        return self._add(hosts, lambda port: (port.reorders, (fault.rate, int(fault.delay))))

    def _change_groups(self, fault: FaultSpec, hosts: list[Host], *, joins: bool) -> Callable[[], None]:
        # Not undone when everything heals: nodes that have left by then stay away.
        assert self._regroup is not None, "this world has no groups to change"

        def change(joins: bool) -> None:
            assert self._regroup is not None
            for host in hosts:
                for group in fault.groups:
                    self._regroup(host, GroupId(group), joins)

        change(joins)
        return lambda: change(not joins)

    def _add(self, hosts: list[Host], make: Callable[[SimPort], tuple[list[Any], Any]]) -> Callable[[], None]:
        """Put one more fault on links; several of a kind may be on at once, and each ends for itself."""
        added = [(host.port, *make(host.port)) for host in hosts]
        for port, faults, fault in added:
            faults.append(fault)
            port.update()

        def end() -> None:
            for port, faults, fault in added:
                faults.remove(fault)
                port.update()

        return end


def _told(fault: FaultSpec) -> Fault:
    return Fault(fault.kind, fault.nodes, fault.groups, fault.lasts)
