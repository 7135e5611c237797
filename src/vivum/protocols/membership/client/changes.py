"""What the client of the configuration service tells the protocol that owns it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vivum.core.ids import Member, RegionId
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.region_config import RegionConfig


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The node has a life in the domain from now on."""

    member: Member


@dataclass(frozen=True, slots=True)
class ConfigurationChanged:
    """A new epoch: the views of the regions that changed, before and after; None where there is none.

    `passed` are views that this node was a member of, that came and were over before it heard of them; in order.
    `unseen` are groups that had a region meanwhile of which it never heard: their views have new numbers too.
    """

    epoch: int
    before: Mapping[RegionId, RegionConfig | None]
    after: Mapping[RegionId, RegionConfig | None]
    passed: tuple[RegionConfig, ...] = ()
    unseen: RangeSet = field(default_factory=RangeSet)


@dataclass(frozen=True, slots=True)
class Removed:
    """That life has ended: the service dropped it, or it left. All that was known of regions is forgotten."""

    member: Member


Change = Welcomed | ConfigurationChanged | Removed
