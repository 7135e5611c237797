"""One replica of a log on sockets, with its disk: opens the state, makes the machine, lets a driver run it.

    port = current_environment().open_port(domain, "127.0.0.1", multicast=False)
    host = ReplicaHost(port, domain, group=1, replica=1, application=app, founders=founders, state_dir="state")
    host.submit(Propose(...))

Without a `state_dir` everything is in memory: then a replica that starts again needs another id, and the log is gone
when all have gone.
"""

import os
from collections.abc import Callable

from vivum.core.errors import UsageError
from vivum.core.ids import Incarnation, Member, NodeId
from vivum.core.machine import Command, Event, Persist
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.protocols.consensus.client_settings import LogServerSettings
from vivum.protocols.consensus.configuration import ReplicaConfiguration
from vivum.protocols.consensus.machine import ReplicaMachine
from vivum.protocols.consensus.records import founding_record, recover
from vivum.protocols.consensus.server import LogServer
from vivum.protocols.consensus.settings import ConsensusSettings
from vivum.protocols.consensus.state_machine import AnswersQueries, StateMachine
from vivum.runtime.driver import Driver
from vivum.runtime.environment import NodePort, current_environment
from vivum.storage.write_ahead.replica_store import ReplicaStore
from vivum.wire.gate import Gate


class ReplicaHost:
    """Runs one replica on the current event loop."""

    def __init__(
        self,
        port: NodePort,
        domain: int,
        group: int,
        replica: NodeId,
        application: StateMachine,
        *,
        founders: ReplicaConfiguration | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        fsync: str = "group",
        settings: ConsensusSettings | None = None,
        serves: LogServerSettings | None = None,
        on_event: Callable[[Event], None],
        on_failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Begin. A replica with neither state nor `founders` waits until a leader takes it in.

        With `serves`, clients that are no replicas are served too. `on_failed` is called with the reason when it stops
        by itself, as on a full disk. Takes the port for itself.
        """
        self.store: ReplicaStore | None = None
        """The disk, and what was found damaged on it; None in memory."""

        try:
            if state_dir is not None:
                self.store = ReplicaStore(state_dir, domain=domain, group=group, replica=replica, fsync=fsync)
            stored = recover([]) if self.store is None else self.store.stored
            is_new = not stored.last_index and stored.promises.impairment is None
            if is_new and founders is not None and replica in founders.replicas:
                record = founding_record(founders)
                if self.store is not None:
                    self.store.append(record)
                stored = recover([record])
            counters, member = Counters(), Member(replica, Incarnation(0))
            gate = Gate(domain, counters, member)
            self.machine = ReplicaMachine(
                replica,
                group,
                stored,
                application,
                gate,
                current_environment().random(),
                settings,
                now_ns=port.now_ns(),
            )
            protocol: ReplicaMachine | LogServer = self.machine
            if serves is not None:
                if not isinstance(application, AnswersQueries):
                    raise UsageError(f"{type(application).__name__} answers no queries, so it cannot serve clients")
                protocol = LogServer(self.machine, application, gate, serves, now_ns=port.now_ns())
            self.counters = counters
            self._driver = Driver(
                Node(member, gate, [protocol], counters),
                port,
                on_event=on_event,
                on_persist=self._persist,
                on_failed=on_failed,
            )
        except BaseException:
            port.close()
            self._close_store()
            raise
        self._driver.start()

    def _persist(self, effect: Persist) -> None:
        if self.store is not None:
            self.store.append(effect.record)

    def submit(self, command: Command) -> None:
        """Hand a command to the replica; raises what it raises (`NotLeaderError`)."""
        self._driver.submit(command)

    def close(self) -> None:
        """Stop, and let go of port and disk. May be called again."""
        self._driver.close()
        self._close_store()

    def _close_store(self) -> None:
        if self.store is not None:
            self.store.close()
