"""Defaults of `connect` and of the commands: environment variables, then a small file, then those of Vivum.

    VIVUM_DOMAIN=team-blue    VIVUM_INTERFACE=10.0.0.5    VIVUM_SEEDS=10.0.0.1:7000,10.0.0.2:7000    VIVUM_UNICAST=1

The file is `~/.config/vivum.toml` (`$XDG_CONFIG_HOME/vivum.toml`), or what `VIVUM_CONFIG` names:

    domain = "team-blue"
    interface = "10.0.0.5"
    seeds = ["10.0.0.1:7000"]
    unicast = true

Invariant: what a caller passes wins over all of it.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vivum.core.errors import HostError, UsageError, open_files_advice

DOMAIN = "default"
LOOPBACK = "127.0.0.1"


class Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands for arguments that were not given."""

    domain: str = DOMAIN
    interface: str = LOOPBACK
    seeds: tuple[str, ...] = ()
    unicast: bool = False


def config_path(environment: Mapping[str, str]) -> Path:
    """Return where the file is, if there is one."""
    named = environment.get("VIVUM_CONFIG")
    if named:
        return Path(named)
    folder = environment.get("XDG_CONFIG_HOME")
    # Not `Path.home()`: it raises for users without a home, as in containers.
    return Path(folder or os.path.expanduser("~/.config")) / "vivum.toml"


def read_defaults(environment: Mapping[str, str] = os.environ) -> Defaults:
    """Read variables and file. Raises `UsageError` that names the file or variable which makes no sense."""
    found = _read_file(config_path(environment), must_exist=bool(environment.get("VIVUM_CONFIG")))
    if environment.get("VIVUM_DOMAIN"):
        found["domain"] = environment["VIVUM_DOMAIN"]
    if environment.get("VIVUM_INTERFACE"):
        found["interface"] = environment["VIVUM_INTERFACE"]
    if environment.get("VIVUM_SEEDS"):
        found["seeds"] = [each.strip() for each in environment["VIVUM_SEEDS"].split(",") if each.strip()]
    if environment.get("VIVUM_UNICAST"):
        if environment["VIVUM_UNICAST"] not in ("0", "1"):
            raise UsageError(f"VIVUM_UNICAST={environment['VIVUM_UNICAST']}: must be 0 or 1")
        found["unicast"] = environment["VIVUM_UNICAST"] == "1"
    return msgspec.convert(found, Defaults)


def _read_file(path: Path, must_exist: bool) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        msgspec.convert(found, Defaults)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        if must_exist:
            raise UsageError(f"VIVUM_CONFIG={path}: {error.strerror}") from None
        return {}
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}{open_files_advice(error)}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        known = ", ".join(Defaults.__struct_fields__)
        raise UsageError(f"{path}: {error}; the file may have {known}") from None
    return found
