"""What nodes hold: bytes of frames, and of datagrams that wait in the socket or behind it.

Messages that wait to be sent are left out: at the highest rate the application keeps that queue full.
"""

from array import array
from statistics import fmean

from experiments.measuring.numbers import Numbers
from vivum.protocols.qsm.machine import QsmMachine
from vivum.sim.host import Host


class MemoryLog:
    """What one kind of nodes hold: at each look the one that holds most."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bytes = array("q")

    def sample(self, hosts: list[tuple[Host, QsmMachine]]) -> None:
        """Look at all nodes of this kind."""
        self._bytes.append(max((_held(*each) for each in hosts), default=0))

    def sum_up(self) -> Numbers:
        """Return the mean and the highest, in kilobytes."""
        return {f"{self._name}_kb_mean": fmean(self._bytes) / 1000, f"{self._name}_kb_max": max(self._bytes) / 1000}


def _held(host: Host, machine: QsmMachine) -> int:
    memory = machine.memory()
    return memory.total_bytes - memory.waiting_bytes + host._socket_bytes + host._inbox_bytes
