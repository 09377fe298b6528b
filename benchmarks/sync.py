"""What it costs to sync a state to the disk: as it is written, and with syncing left out, in turns.

python benchmarks/sync.py --out results/speed/sync_cpu.json
"""

import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import tyro

from elden.provenance import provenance
from elden.storage.arrays import write_arrays
from elden.storage.files import write_json


@dataclass(frozen=True)
class Args:
    """What to write, and how often."""

    arrays: int = 117
    """Arrays of a state."""
    megabytes: int = 60
    """Their size together."""
    times: int = 20
    """States that are written each way."""
    out: Path | None = None
    """JSON file for the numbers."""


def main(args: Args) -> None:
    """Measure, and print the medians."""
    size = args.megabytes * 2**20 // args.arrays // 8
    arrays = {f"a{i}": np.random.default_rng(i).random(size) for i in range(args.arrays)}
    seconds: dict[str, list[float]] = {"synced": [], "not synced": []}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for turn in range(args.times):
            for name, found in seconds.items():
                with patch("os.fsync", os.fsync if name == "synced" else lambda _: None):
                    began = time.perf_counter()
                    write_arrays(Path(folder) / f"{name} {turn % 2}", "agents", arrays, {"turn": turn})
                    found.append(time.perf_counter() - began)
    medians = {f"{name.replace(' ', '_')}_s": round(statistics.median(found), 3) for name, found in seconds.items()}
    print(medians)
    if args.out is not None:
        sizes = {"arrays": args.arrays, "megabytes": args.megabytes, "times": args.times}
        write_json(args.out, {"kind": "sync", **provenance(), **sizes, **medians})


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
