"""What the client of the configuration service tells the protocol that owns it."""

from collections.abc import Mapping
from dataclasses import dataclass

from vivum.core.ids import Member, RegionId
from vivum.protocols.membership.region_config import RegionConfig


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The node has a life in the domain from now on."""

    member: Member


@dataclass(frozen=True, slots=True)
class ConfigurationChanged:
    """A new epoch: the views of the regions that changed, before and after; None where there is none."""

    epoch: int
    before: Mapping[RegionId, RegionConfig | None]
    after: Mapping[RegionId, RegionConfig | None]


@dataclass(frozen=True, slots=True)
class Removed:
    """That life has ended: the service dropped it, or it left. All that was known of regions is forgotten."""

    member: Member


Change = Welcomed | ConfigurationChanged | Removed
