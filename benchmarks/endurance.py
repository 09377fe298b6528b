"""Memory and open files of a long training run, from its beginning to its end.

    python benchmarks/endurance.py --out results/speed/endurance_gpu.json
    python benchmarks/endurance.py --of results/speed/endurance_gpu.json --figure results/speed/endurance_gpu.png

A process of `elden train` is looked at again and again while it trains: its resident memory, its open file descriptors,
and the memory of the GPU that is in use, by whomever, where there is one (not in the figure).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from elden.provenance import provenance
from elden.storage.files import write_json

_WARM = 0.1
"""Share of the steps after which everything is there that a training run needs."""


@dataclass(frozen=True)
class Args:
    """What to train, and what to write."""

    world: str = "carwash"
    """In which world."""
    seeds: int = 10
    """Agents side by side."""
    steps: int = 10_000_000
    """Steps of each."""
    options: str = "--bonus.no-models --iterations-per-call 4 --save-every-s 20"
    """Further options of `elden train`."""
    every_s: float = 1.0
    """Seconds between two looks."""
    out: Path | None = None
    """JSON file for the numbers."""
    of: Path | None = None
    """Train nothing, and draw the numbers of this file."""
    figure: Path | None = None
    """PNG file for them."""


def look(process: subprocess.Popen[bytes], folder: Path) -> dict[str, float]:
    """What a process needs now, and how far it is."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    found = {"resident_mib": int(resident) / 1024, "files": len(os.listdir(f"/proc/{process.pid}/fd"))}
    file = folder / "metrics.jsonl"
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    step = json.loads(lines[-1])["step"] if lines else 0
    if smi := shutil.which("nvidia-smi"):
        words = [smi, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        found["gpu_mib"] = float(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0])
    return {"step": step, **found}


def watch(args: Args) -> list[dict[str, float]]:
    """Train, and look at it.

    Raises:
        SystemExit: The training failed.
    """
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        sizes = ("--seeds", str(args.seeds), "--steps", str(args.steps), "--out", str(folder))
        words = [sys.executable, "-m", "elden", "train", args.world, *args.options.split(), *sizes]
        began = time.monotonic()
        with (Path(place) / "log").open("w") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
            while process.poll() is None:
                time.sleep(args.every_s)
                try:
                    rows.append({"seconds": round(time.monotonic() - began, 1), **look(process, folder)})
                except (OSError, StopIteration):  # it has just ended
                    break
        if process.wait() != 0:
            sys.exit((Path(place) / "log").read_text()[-2000:])
    return rows


def summary(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Of every measure: when a tenth of the steps was made, at the end of the steps, and the most in between."""
    last = max(row["step"] for row in rows)
    trained = [row for row in rows if _WARM * last <= row["step"] < last] or rows
    names = [name for name in rows[-1] if name not in ("seconds", "step")]
    return {
        name: {
            "after_a_tenth": trained[0][name],
            "at_the_end": trained[-1][name],
            "most": max(row[name] for row in trained),
        }
        for name in names
    }


def draw(file: Path, figure: Path) -> None:
    """The curves of a file."""
    import matplotlib.pyplot as plt

    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    rows, names = found["rows"], [name for name in found["summary"] if name != "gpu_mib"]
    canvas, axes = plt.subplots(len(names), 1, sharex=True, figsize=(7, 2.1 * len(names)), layout="constrained")
    titles = {
        "resident_mib": "memory of the process, MiB",
        "files": "open file descriptors",
    }
    millions = [row["step"] * found["seeds"] / 1e6 for row in rows]
    for axis, name in zip(axes, names, strict=True):
        axis.plot(millions, [row[name] for row in rows], color="#31688e")
        axis.set_ylim(bottom=0)
        axis.set_title(titles[name], loc="left", fontsize=10)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel(f"million environment steps of all {found['seeds']} agents, {found['world']}")
    canvas.savefig(figure, dpi=120)


def main(args: Args) -> None:
    """Measure or draw."""
    if args.of is None:
        rows = watch(args)
        found = summary(rows)
        print(json.dumps(found, indent=1))
        if args.out is not None:
            given = {"world": args.world, "seeds": args.seeds, "steps": args.steps, "options": args.options}
            write_json(args.out, {"kind": "endurance", **provenance(), **given, "summary": found, "rows": rows})
    file = args.of or args.out
    if args.figure is not None and file is not None:
        draw(file, args.figure)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
