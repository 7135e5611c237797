"""The XOR in use: the compiled one, or its plain-Python twin where that was not built. `_xor_twin` has what it does."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vivum.wire import _xor_twin as _chosen
else:
    try:
        from vivum.wire import _xor as _chosen
    except ImportError:
        from vivum.wire import _xor_twin as _chosen

xor_all = _chosen.xor_all
