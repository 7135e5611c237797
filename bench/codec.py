"""How fast messages are packed into frames and split out of them, by the compiled codec and by its Python twin.

    python bench/codec.py [--seconds 0.5] [--json]

Measured for each form, payload (100 and 1,000 bytes) and frame (1,472 and 60,000 bytes):

- pack: `FrameBuilder.extend` from a list of `bytes`, and `seal`. Messages/s that went into frames.
- split: `split` of a received buffer and `messages()` of its frames, into Python `bytes` that are dropped at once.
- kept: the same, with 100,000 messages held before they are dropped together, as a slow application does.
- resident: bytes that a kept message costs, payload included, by the growth of the resident set of a fresh process
  (`/proc/self/statm`). Traced: the same by tracemalloc, which sees Python objects alone.

Best of several rounds, since other work on the machine only slows a round. With `--json` the last line is one object.
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

from vivum.wire import _codec_twin, codec
from vivum.wire.kinds import Kind

HEADER = (1, 2, 3, 4, 5, 6, 7)
ROUNDS = 5
KEPT_MESSAGES = 100_000
GOAL = ("compiled", 100, 60_000, 5_000_000)


def best_rate(seconds, step):
    """Messages a second of the best round; `step` does a piece of work and returns how many messages it was."""
    best = 0.0
    for _ in range(ROUNDS):
        count, start = 0, time.perf_counter()
        stop = start + seconds / ROUNDS
        now = start
        while now < stop:
            count += step()
            now = time.perf_counter()
        best = max(best, count / (now - start))
    return best


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(form, payload_bytes, frame_bytes, seconds):
    payloads = [os.urandom(payload_bytes) for _ in range(1000)]
    builder = form.FrameBuilder(frame_bytes)

    def pack():
        count = builder.extend(7, 1000, payloads)
        builder.seal(Kind.DATA, *HEADER)
        return count

    per_frame = builder.extend(7, 1000, payloads)
    frame = builder.seal(Kind.DATA, *HEADER)
    # A received buffer as UDP_GRO gives it: as many frames as fit 64 KiB.
    joined = max(1, 65_536 // len(frame))
    buffer = frame * joined
    split = form.split

    def split_and_drop():
        for each in split(buffer):
            each.messages()
        return per_frame * joined

    def keep(limit):
        kept, count = [], 0
        while count < limit:
            for each in split(buffer):
                kept.append(each.messages())
            count += per_frame * joined
        return kept, count

    def split_and_keep():
        return keep(KEPT_MESSAGES)[1]

    result = {
        "payload_bytes": payload_bytes,
        "frame_bytes": frame_bytes,
        "messages_per_frame": per_frame,
        "pack_per_s": round(best_rate(seconds, pack)),
        "split_per_s": round(best_rate(seconds, split_and_drop)),
        "split_kept_per_s": round(best_rate(seconds, split_and_keep)),
    }
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept, count = keep(KEPT_MESSAGES)
    result["traced_bytes_per_message"] = round((tracemalloc.get_traced_memory()[0] - before) / count, 1)
    tracemalloc.stop()
    del kept
    return result


def resident_per_message(form_name, payload_bytes, frame_bytes):
    """Measure memory in a process of its own: heap that an earlier measurement left behind would hide it."""
    command = [sys.executable, __file__, "--memory", form_name, str(payload_bytes), str(frame_bytes)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def memory_child(form_name, payload_bytes, frame_bytes):
    form = FORMS[form_name]
    builder = form.FrameBuilder(frame_bytes)
    per_frame = builder.extend(7, 1000, [os.urandom(payload_bytes) for _ in range(1000)])
    frame = builder.seal(Kind.DATA, *HEADER)
    kept = [None] * (KEPT_MESSAGES // per_frame + 1)
    form.split(frame)[0].messages()
    gc.collect()
    before = resident_bytes()
    for index in range(len(kept)):
        kept[index] = form.split(frame)[0].messages()
    print(round((resident_bytes() - before) / (len(kept) * per_frame), 1))


def commit():
    """The commit that was measured, with a mark if the tree has changes."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        here = Path(__file__).parent
        return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine():
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


FORMS = {"compiled": codec, "twin": _codec_twin} if codec.COMPILED else {"twin": _codec_twin}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        memory_child(options.memory[0], int(options.memory[1]), int(options.memory[2]))
        return
    about = {"machine": machine(), "python": platform.python_version(), "commit": commit()}
    print(", ".join(about.values()))
    if not codec.COMPILED:
        print("The compiled codec was not built, or VIVUM_PURE=1 is set: the twin alone is measured.")
    print("million messages/s; bytes for each message")
    print(f"{'form':9}{'payload':>8}{'frame':>8}{'pack':>9}{'split':>9}{'kept':>9}{'resident':>10}{'traced':>8}")
    results = []
    for name, form in FORMS.items():
        for payload_bytes in (100, 1000):
            for frame_bytes in (1472, 60_000):
                result = {"form": name, **measure(form, payload_bytes, frame_bytes, options.seconds)}
                result["resident_bytes_per_message"] = resident_per_message(name, payload_bytes, frame_bytes)
                results.append(result)
                rates = [result[key] / 1e6 for key in ("pack_per_s", "split_per_s", "split_kept_per_s")]
                print(
                    f"{name:9}{payload_bytes:8}{frame_bytes:8}"
                    + "".join(f"{rate:9.2f}" for rate in rates)
                    + f"{result['resident_bytes_per_message']:10}{result['traced_bytes_per_message']:8}"
                )
    by_key = {(each["form"], each["payload_bytes"], each["frame_bytes"]): each for each in results}
    reached = by_key.get(GOAL[:3], {}).get("split_per_s")
    if reached is not None:
        print(f"goal: split {GOAL[3] / 1e6:g} million/s of {GOAL[1]} bytes; reached {reached / 1e6:.1f}")
    if options.json:
        goal = {"split_per_s": GOAL[3], "reached_per_s": reached}
        print(json.dumps({"benchmark": "codec", **about, "goal": goal, "results": results}))


if __name__ == "__main__":
    main()
