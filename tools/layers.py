"""The house in one table: which package may import which, which are pure, and who owns a heavy library.

Data alone. The rules that read it are in `tools/tidy`, the tests in `tests/tidy`. A new package under
`src/vivum` gets a row here first; until then the layers test fails.
"""

LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("demo",),
    ("bench",),
    ("vivum",),  # src/vivum/__init__.py itself: what `import vivum` offers
    ("sync", "kv", "uncompiled"),
    ("console", "pipeline"),
    ("testing",),
    ("tempest",),
    ("live",),
    ("runtime", "sim"),
    ("storage",),
    ("node",),
    ("guarantees",),
    ("protocols", "properties"),
    ("checkers",),
    ("wire",),
    ("observe",),
    ("core",),
)
"""Rows from top to bottom. Imports point downward only; neighbours in a row do not import each other."""

PROTOCOLS: tuple[str, ...] = (
    "vsync",
    "order",
    "bimodal",
    "ricochet",
    "qsm",
    "unrepaired",
    "gossip",
    # What these share: it knows none of them.
    "groupstreams",
    "streams",
    "dissemination",
    "rings",
    "kv",
    "directory",
    "discovery",
    "membership",
    "consensus",
    "survey",
    "reference",
    "keyed",
)
"""The same inside `vivum.protocols`, one sub-package a row. Modules beside them are the ground for all."""

PURE: frozenset[str] = frozenset(
    {"core", "observe", "wire", "checkers", "protocols", "properties", "node", "live.objects"}
)
"""Packages (or modules, with a dot) that know no socket, clock, file, thread or global randomness."""

SEEDED: frozenset[str] = frozenset({"sim", "testing"})
"""Packages that may touch the world but draw nothing from global randomness: one seed decides every run."""

IMPURE_MODULES: frozenset[str] = frozenset(
    {
        "asyncio",
        "concurrent",
        "glob",
        "importlib",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uvloop",
    }
)
"""Top-level modules that a pure package never imports, not even inside a function."""

IMPURE_CALLS: frozenset[str] = frozenset({"open", "print", "input", "breakpoint", "__import__"})
"""Builtins that a pure package never calls."""

PURITY_EXCEPTIONS: dict[tuple[str, str], str] = {}
"""Module and impure thing that it may use all the same, with the reason. An unneeded entry fails the test."""

LIBRARY_OWNERS: dict[str, frozenset[str]] = {
    "pyspark": frozenset({"pipeline"}),
    "nicegui": frozenset({"console"}),
    "pyarrow": frozenset({"storage", "pipeline"}),
    "zmq": frozenset({"bench"}),
    "zenoh": frozenset({"bench"}),
    "nats": frozenset({"bench"}),
    "redis": frozenset({"bench"}),
    "pysyncobj": frozenset({"bench"}),
}
"""Heavy optional libraries, and the only packages that import them."""

SAME_NAMES: dict[str, str] = {
    "connect": "vivum.sync.connect is vivum.connect for programs without asyncio; vivum.kv.connect reaches a store",
    "serve": "vivum.kv.serve runs a replica of a store; vivum.bench has one for its topics",
    "prepare": "every system of vivum.bench.systems has one, found by the name of its module",
    "World": "vivum.testing.World is to whole programs what vivum.sim's is to machines",
    "replicate": "as prepare",
    "send": "as prepare; and the command send-file",
    "receive": "as prepare; and the command receive-file",
}
"""Public names that two modules may both define, with the reason. An unneeded entry fails the test."""
