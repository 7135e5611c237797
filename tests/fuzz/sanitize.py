"""Runs the compiled codec under AddressSanitizer and UndefinedBehaviorSanitizer, once in a while and by hand.

    python tests/fuzz/sanitize.py [--inputs N] [--plant]

Builds a copy of the package with gcc's sanitizers in a temporary folder, and runs there the unit and property tests
of the wire and of shared memory, and N damaged buffers. `PYTHONMALLOC=malloc` makes every `bytes` object an allocation
of its own, so that a read past its end is a read past an allocation. `--plant` takes one check of lengths out of the
copy first: the run must then fail, which shows that the sanitizer looks where it should.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
CHECK = "if stop - at < size:"


def library(name):
    """Find a run-time library of the compiler."""
    return subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def build(folder, plant):
    """Copy the package and build it with sanitizers."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "README.md").touch()
    (folder / "LICENSE").touch()
    if plant:
        path = folder / "src/vivum/wire/_body.pxd"
        text = path.read_text()
        assert text.count(CHECK) == 1
        path.write_text(text.replace(CHECK, "if False:"))
    environment = {**os.environ, "CFLAGS": FLAGS, "LDFLAGS": FLAGS}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert list((folder / "src/vivum/wire").glob("_codec*.so")), "the sanitized build failed"


def run_inputs(count):
    """Split and read damaged buffers; runs in the sanitized process."""
    from vivum.core.errors import DecodeError
    from vivum.wire import _codec

    rng = random.Random(1)
    builder = _codec.FrameBuilder(2000)
    accepted = 0
    for number in range(count):
        for _ in range(rng.randrange(5)):
            sizes = [rng.choice((0, 1, 3, 30, 300)) for _ in range(rng.randrange(5))]
            group = rng.randrange(3)
            if rng.randrange(3) == 0 and builder.room(group, number) > 300:
                builder.append_fragment(group, number, _codec.FLAG_CONTINUES, rng.randbytes(rng.choice((1, 30))))
            builder.extend(group, number + 1, [rng.randbytes(size) for size in sizes])
            if rng.randrange(3) == 0 and builder.room(group, number) > 300:
                after = number + 1 + len(sizes)
                builder.append_fragment(group, after, _codec.FLAG_MORE, rng.randbytes(rng.choice((1, 30))), 500)
        data = bytearray(builder.seal(1, 0, 1, 1, 0, 0, number, number, 0, rng.choice((0, 64, 700))))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 14, 40, 255, rng.randrange(256)))
        if rng.randrange(4) == 0:
            del data[rng.randrange(1, len(data)) :]
            data[2:4] = len(data).to_bytes(2, "little")
        try:
            frames = [*_codec.split(data), *_codec.split_trains(data)]
        except DecodeError:
            continue
        accepted += 1
        for frame in frames:
            frame.messages()
            frame.body()
            frame.to_bytes()
    print(f"{_codec.__file__}: {count} buffers, {accepted} accepted")  # noqa: T201


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="damaged buffers to split (default %(default)s)")
    parser.add_argument("--plant", action="store_true", help="take a check out first; then a report must come")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_inputs(options.inputs)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        build(folder, options.plant)
        environment = {
            **os.environ,
            "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONPATH": str(folder / "src"),
        }
        inputs = [sys.executable, __file__, "--child", "--inputs", str(options.inputs)]
        tests = [sys.executable, "-m", "pytest", "tests/unit/wire", "tests/property/wire"]
        tests.append("tests/unit/runtime/shared_memory")
        for command in (inputs,) if options.plant else (inputs, tests):
            subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
