"""Which nodes should have a replica of the service, and the next change that leads there.

The oldest nodes have them, on different hosts as far as there are any. Where there are not enough nodes for an odd
number above one, one replica votes and the others are learners: of two voters both would be needed. A replica that
answers stays; one whose life has ended, or that was silent for too long, is removed, and the next oldest takes its
place.

A function of what the leader sees now: nothing is remembered.
"""

from collections.abc import Collection, Sequence

from vivum.core.ids import NodeId
from vivum.core.machine import Command
from vivum.protocols.consensus.commands import AddLearner, PromoteLearner, RemoveReplica
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration


def choose_replicas(own: Replica, candidates: Sequence[Replica], wanted: int) -> list[Replica]:
    """Choose replicas, the own one first: candidates in their order, but those on other hosts before."""
    chosen, hosts = [own], {own.host}
    for each in candidates:
        if len(chosen) < wanted and each.host not in hosts:
            chosen.append(each)
            hosts.add(each.host)
    for each in candidates:
        if len(chosen) < wanted and each not in chosen:
            chosen.append(each)
    return chosen


def next_change(
    own: NodeId,
    configuration: ReplicaConfiguration,
    willing: Sequence[Replica],
    lost: Collection[NodeId],
    caught_up: Collection[NodeId],
    wanted: int,
) -> Command | None:
    """Return the next change of replicas, or None if they are as they should be.

    `willing` are those that could be one, the oldest first; `lost` those of the configuration that do not answer or
    whose life has ended; `caught_up` the learners that have nearly all of the log.
    """
    replicas = configuration.replicas
    here = [each for node, each in replicas.items() if node != own and node not in lost]
    kept = sorted(here, key=lambda each: not each.votes)
    known = {each.id for each in kept} | {own} | {int(each) for each in lost}
    chosen = choose_replicas(replicas[own], [*kept, *[each for each in willing if each.id not in known]], wanted)
    voting = len(chosen) if len(chosen) % 2 else len(chosen) - 1
    wanted_ids = [NodeId(each.id) for each in chosen]
    voters = set(wanted_ids[:voting])
    # Who is gone first: no majority should need it.
    for node in sorted(replicas):
        if node in lost and node != own:
            return RemoveReplica(node)
    for each in chosen:
        if NodeId(each.id) not in replicas:
            return AddLearner(each)
    # Both together, so that the number of voters is even only for a moment.
    learners = [node for node in wanted_ids if node in voters and not replicas[node].votes]
    if learners and all(node in caught_up for node in learners):
        return PromoteLearner(learners[0])
    if learners:
        return None
    for node in sorted(replicas):
        if node not in wanted_ids or (replicas[node].votes and node not in voters):
            return RemoveReplica(node)
    return None
