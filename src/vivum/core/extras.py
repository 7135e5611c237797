"""Which extra of the package brings which library: the one place for the advice `pip install 'vivum[...]'`.

`pip install vivum` brings what topics need. The libraries here are optional. pyarrow is not a plain dependency because
of its size: it takes 170 MB on disk (55 MB to download), Vivum and all that it needs 43 MB (`make wheel` prints it).
"""

from vivum.core.errors import UsageError

EXTRAS: dict[str, str] = {
    "pyarrow": "log",
    "xxhash": "log",
    "pyspark": "spark",
    "pandas": "spark",
    "uvloop": "fast",
    "zmq": "bench",
    "zenoh": "bench",
    "nats": "bench",
    "redis": "bench",
    "pysyncobj": "bench",
    "matplotlib": "dev",
}
"""The smallest extra that brings a library, by the name by which it is imported."""


def missing_library(error: ImportError, purpose: str, extra: str | None = None) -> UsageError | None:
    """Return what to tell the user if an import failed for want of an optional library; None for another cause.

    `extra` is what the purpose needs in all, if that is more than the library's own extra.
    """
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        return None
    extra = extra or EXTRAS[library]
    return UsageError(f"{purpose} {library}; install it with: pip install 'vivum[{extra}]'")
