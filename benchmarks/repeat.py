"""Whether a training run makes the same numbers again: in another process, and after it was killed and resumed.

Three processes run the same `elden train`; the third is killed (SIGKILL) as soon as it has kept its second state, and
then resumed. Every array of the last states (policy, optimiser, models, replay, worlds, scales) and every line of the
metrics are compared with those of the first process, bit for bit.

On a GPU the compiler times several kernels for a product and takes the fastest, so two processes may choose
differently, and these may round differently. `--deterministic` tells it to choose by rule and to use no kernel whose
sums depend on the order of threads.

    python benchmarks/repeat.py --world thawing --deterministic --out results/speed/repeat_gpu.json
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tyro

from elden.provenance import provenance
from elden.storage.arrays import read_arrays

DETERMINISTIC = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


@dataclass(frozen=True)
class Args:
    """What to repeat."""

    world: str = "thawing"
    """The world."""
    options: str = "--steps 12800 --seeds 2"
    """Further options of `elden train`."""
    deterministic: bool = False
    """Let the GPU's compiler choose by rule."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


@dataclass(frozen=True)
class Row:
    """A training beside the first one."""

    what: str
    arrays: int
    """Arrays in a state."""
    different: list[str]
    """Those that are not the same."""
    same_metrics: bool


def main(args: Args) -> None:
    """Train three times and compare."""
    words = ["train", args.world, *shlex.split(args.options), "--save-every-s", "0"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [folder / which for which in ("first", "again", "killed")]
        processes = [_start(args, [*words, "--out", str(run)], run) for run in runs]
        try:
            _kill_after(processes[2], runs[2])
            for process, run in zip(processes[:2], runs[:2], strict=True):
                _finish(process, run)
            at = max(int(state.name) for state in _states(runs[2]))
            processes.append(_start(args, ["resume", str(runs[2])], runs[2]))
            _finish(processes[-1], runs[2])
        finally:
            for process in processes:
                process.kill()
        rows = [_beside(runs[0], runs[1], "again"), _beside(runs[0], runs[2], f"killed after rollout {at}, resumed")]
    for row in rows:
        same = "all the same" if not row.different else f"{len(row.different)} differ"
        print(f"{row.what}: {row.arrays} arrays, {same}; metrics {'the same' if row.same_metrics else 'differ'}")
    if args.out is not None:
        said = {
            **provenance(),
            "train": shlex.join(["elden", *words]),
            "xla_flags": _flags(args),
            "rows": [asdict(row) for row in rows],
        }
        args.out.write_text(json.dumps(said, indent=1) + "\n")


def _flags(args: Args) -> str:
    known = os.environ.get("XLA_FLAGS", "")
    return f"{known} {DETERMINISTIC}".strip() if args.deterministic else known


def _start(args: Args, words: Sequence[str], run: Path) -> subprocess.Popen[bytes]:
    with run.with_suffix(".txt").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "elden.cli", *words],
            env=os.environ | {"XLA_FLAGS": _flags(args), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            stdout=said,
            stderr=said,
        )


def _finish(process: subprocess.Popen[bytes], run: Path) -> None:
    if process.wait() != 0:
        sys.exit(f"a training failed:\n{run.with_suffix('.txt').read_text()}")


def _kill_after(process: subprocess.Popen[bytes], run: Path) -> None:
    """Kill a training run as soon as it has kept its second state."""
    while not (run / "checkpoints" / "000000002").exists():
        if process.poll() is not None:
            _finish(process, run)
            sys.exit("the third training came to its end before it was killed; give more --steps")
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


def _states(run: Path) -> list[Path]:
    return [state for state in (run / "checkpoints").iterdir() if state.name.isdigit()]


def _beside(one: Path, other: Path, what: str) -> Row:
    first, second = (read_arrays(max(_states(run)), "agents")[0] for run in (one, other))
    different = [name for name in sorted(first.keys() | second.keys()) if not _same(first, second, name)]
    lines = [(run / "metrics.jsonl").read_bytes() for run in (one, other)]
    return Row(what, len(first), different, lines[0] == lines[1])


def _same(first: dict[str, np.ndarray], second: dict[str, np.ndarray], name: str) -> bool:
    return name in first and name in second and np.asarray(first[name]).tobytes() == np.asarray(second[name]).tobytes()


if __name__ == "__main__":
    main(tyro.cli(Args))
