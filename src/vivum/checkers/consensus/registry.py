"""The checkers of replicated logs, by name. A list of their own: topics promise none of them by themselves."""

from vivum.checkers.checker import Checker
from vivum.checkers.consensus.at_most_once import AtMostOnce
from vivum.checkers.consensus.election_safety import ElectionSafety
from vivum.checkers.consensus.leader_completeness import LeaderCompleteness
from vivum.checkers.consensus.linearizable import Linearizable
from vivum.checkers.consensus.log_matching import LogMatching
from vivum.checkers.consensus.state_machine_safety import StateMachineSafety

LOG_CHECKERS: dict[str, type[Checker]] = {
    each.name: each
    for each in (ElectionSafety, LogMatching, LeaderCompleteness, StateMachineSafety, AtMostOnce, Linearizable)
}
"""Every checker of a replicated log by name."""
