"""Choose (r, c) for the loss that is measured: the cheapest that repairs a wanted share, within an overhead.

A frame that a member lost is in about c XORs that are sent to it, a Poisson number. One of them helps if it comes, and
if the member has the other r - 1 frames: with loss p, with probability (1 - p)^r. So about exp(-c (1 - p)^r) of the
losses are left for the sender.
"""

from math import exp, log

from vivum.wire.timely import NAMES_MAX


def recovered_share(frames: int, copies: float, loss: float) -> float:
    """Return the share of losses that (r, c) repairs laterally, in a group with many more members than c."""
    return 1.0 - exp(-copies * (1.0 - loss) ** frames)


def choose(loss: float, wanted: float, overhead_max: float, frames_max: int = NAMES_MAX) -> tuple[int, float]:
    """Return the (r, c) with the least overhead c/r that repairs this share, or the one that repairs most within it."""
    best: tuple[float, float, int, float] | None = None
    for frames in range(1, frames_max + 1):
        useful = (1.0 - loss) ** frames
        needed = -log(1.0 - wanted) / useful if useful > 0 else overhead_max * frames + 1
        copies = min(needed, overhead_max * frames)
        share = recovered_share(frames, copies, loss)
        key = (-min(share, wanted), copies / frames, frames, copies)
        if best is None or (round(key[0], 9), *key[1:]) < (round(best[0], 9), *best[1:]):
            best = key
    assert best is not None
    return best[2], best[3]
