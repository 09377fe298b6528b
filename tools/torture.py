"""Does what happens to run folders and command lines in the wild, and counts what is lost.

Processes are killed at random moments, files are damaged, replaced by links and pipes, the disk is full, and command
lines are made up. What must come of it: nothing is lost, nothing damaged is taken without a word, every mistake is
answered with one line, and no process is left.

    python tools/torture.py --out runs/torture.json
    python tools/torture.py --only corruptions lines --corruptions 100 --lines 100

Command lines are those of `fuzz_command_line.py`, environments those of `bad_environments.py`.
"""

import contextlib
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import tyro

from elden.bonuses.intrinsic import IntrinsicReward
from elden.cli.arguments import parse
from elden.lifeline import GRACE_S
from elden.provenance import provenance
from elden.storage.arrays import read_arrays, write_arrays
from elden.storage.checkpoints import Checkpoints
from elden.storage.files import StorageError, write_json
from elden.studies.dataset import CollectConfig, collect, load_dataset
from elden.studies.exploration import Agents
from elden.training.run import TrainingRun
from elden.worlds.registry import make

OUTCOMES = ("whole", "refused", "noticed", "lost", "silent", "traceback", "left")
"""The same as before; refused with a line; used with a warning. Then what must not be: work that is lost, damage that
is taken without a word, an error that is not answered with a line, a process that is left running."""

_TRAIN = (
    *("train", "chain", "--depth", "2", "--noisy", "0", "--intricate", "0", "--bonus", "rnd", "--seeds", "2"),
    *("--steps", "2560", "--loop.num-envs", "8", "--loop.rollout", "8", "--loop.warmup-steps", "64"),
    *("--ppo.minibatch-size", "16", "--ppo.hidden", "8", "--save-every-s", "0", "--out"),
)
_COLLECT = ("collect", "chain", "--transitions", "20000", "--chunk-episodes", "8", "--out")
_COMPARE = (
    *("compare", "--worlds", "chain --depth 2 --loop.num-envs 8 --loop.rollout 8 --ppo.minibatch-size 16"),
    *("--bonuses", "none", "--seeds", "1", "--steps", "1280", "--out"),
)
_SAVE = """
import sys
import numpy as np
from elden.bonuses.intrinsic import IntrinsicReward
from elden.factors import Discrete, Entity, Factors, Variable
bonus = IntrinsicReward(Factors((Entity("lamp", (Variable("on", Discrete(2)),)),)), 2, "rnd")
while True:
    bonus.updates += 1
    bonus.save(sys.argv[1])
"""
_OBEY_PERMISSIONS = """
import ctypes, os, sys
if os.geteuid() == 0:  # root may write everywhere; without this capability (Linux) it obeys permissions
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)
os.execv(sys.executable, [sys.executable, "-m", "elden", *sys.argv[1:]])
"""
_LONGEST_S = 600.0


@dataclass(frozen=True)
class Args:
    """How much to try."""

    only: tuple[str, ...] = ()
    """Which parts: kills, corruptions, links, disk, read-only, lines, environments; none takes all."""
    kills: int = 50
    """Processes to kill."""
    corruptions: int = 1000
    """Files to damage."""
    lines: int = 10_000
    """Command lines to make up."""
    seed: int = 0
    """Decides all randomness but that of the machine."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


@dataclass
class Table:
    """How often each part had each outcome, and what went wrong."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, part: str, what: str, outcome: str) -> None:
        """Count one trial."""
        self.counts.setdefault(part, Counter())[outcome] += 1
        if OUTCOMES.index(outcome) >= OUTCOMES.index("lost"):
            self.wrong.append(f"{part}: {what}: {outcome}")

    def show(self) -> str:
        """The table as text."""
        rows: list[tuple[str, ...]] = [("", "tried", *OUTCOMES)]
        for part, counts in self.counts.items():
            rows.append((part, str(counts.total()), *(str(counts[outcome]) for outcome in OUTCOMES)))
        width = max(len(row[0]) for row in rows)
        return "\n".join(row[0].ljust(width) + "".join(word.rjust(11) for word in row[1:]) for row in rows)


def main(args: Args) -> None:
    """Try everything, print the table, and end with 1 where something is wrong."""
    table, rng, began = Table(), random.Random(args.seed), time.monotonic()
    parts: dict[str, Callable[[Path], None]] = {
        "kills": lambda folder: try_kills(table, rng, folder, args.kills),
        "corruptions": lambda folder: try_corruptions(table, rng, folder, args.corruptions),
        "links": lambda folder: try_links(table, folder),
        "disk": lambda folder: try_full_disk(table, folder),
        "read-only": lambda folder: try_read_only(table, folder),
        "lines": lambda folder: try_lines(table, args.seed, args.lines),
        "environments": lambda folder: try_environments(table),
    }
    for name in args.only or parts:
        with tempfile.TemporaryDirectory() as folder:
            parts[name](Path(folder))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(table.show())
    print("\n".join(table.wrong))
    if args.out is not None:
        counts = {part: {"tried": each.total(), **each} for part, each in table.counts.items()}
        found = {"kind": "torture", "counts": counts, "wrong": table.wrong, "wall_s": time.monotonic() - began}
        write_json(args.out, {**found, "seed": args.seed, "provenance": provenance()})
    sys.exit(bool(table.wrong))


# Processes that are killed.


def _start(words: Sequence[str], said: Path) -> subprocess.Popen[bytes]:
    with said.open("ab") as stream:
        return subprocess.Popen([sys.executable, *words], stdout=stream, stderr=stream, env=_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def _kill_at_random(words: Sequence[str], said: Path, rng: random.Random, ready: Callable[[], bool]) -> bool:
    """Kill a process some time after it is ready; whether it was still running."""
    process, began = _start(words, said), time.monotonic()
    while not ready() and process.poll() is None and time.monotonic() - began < _LONGEST_S:
        time.sleep(0.05)
    time.sleep(rng.choice((0.0, 0.05, 0.5, 2.0)) * rng.random())
    running = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return running


def _processes_of(folder: Path) -> list[int]:
    """Processes whose command lines name a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder) in (entry / "cmdline").read_bytes().decode(errors="replace"):
                found.append(int(entry.name))
    return [number for number in found if number != os.getpid()]


def _left(folder: Path) -> list[int]:
    """Processes that still run after the time in which they may keep their state; they are killed."""
    until = time.monotonic() + GRACE_S + 10.0
    while (found := _processes_of(folder)) and time.monotonic() < until:
        time.sleep(0.2)
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return found


def try_kills(table: Table, rng: random.Random, folder: Path, kills: int) -> None:
    """Kill trainings, collections, comparisons and savings of a bonus, and let them continue."""
    if not Path("/proc").exists():
        sys.exit("processes that are left are looked for in /proc, which is not there; --only leaves kills out")
    scenarios: list[tuple[str, tuple[str, ...], Callable[[Path], Any]]] = [
        ("kills: training", ("-m", "elden.cli", *_TRAIN), _end_of_training),
        ("kills: data", ("-m", "elden.cli", *_COLLECT), _arrays),
        ("kills: comparison", ("-m", "elden.cli", *_COMPARE), _end_of_comparison),
    ]
    for number, (part, words, end) in enumerate(scenarios):
        share = max(1, (kills * 3 // 4 + number) // len(scenarios))
        whole, killed = folder / f"whole{number}", folder / f"killed{number}"
        _finish(words, whole)
        trial = 0
        while trial < share:
            ready = partial(_changed, killed, _files(killed))
            if not _kill_at_random([*words, str(killed)], folder / "said.txt", rng, ready):
                shutil.rmtree(killed)  # it came to its end before: once more from the start
                continue
            trial += 1
            table.add(part, f"kill {trial}", "left" if _left(killed) else "whole")
        _finish(words, killed)
        table.add(part, "the end is that of a run that was never killed", _same(end(whole), end(killed)))
    _kill_savings(table, rng, folder, max(1, kills // 4))


def _finish(words: Sequence[str], folder: Path) -> None:
    said = folder.with_suffix(".txt")
    if _start([*words, str(folder)], said).wait() != 0:
        raise RuntimeError(f"{words} failed:\n{said.read_text()}")


def _kill_savings(table: Table, rng: random.Random, folder: Path, kills: int) -> None:
    place, last = folder / "bonus", 0
    for trial in range(kills):
        before = _arrays(place, "card.json")
        ready = partial(_saved, place, before)
        _kill_at_random(["-c", _SAVE, str(place)], folder / "said.txt", rng, ready)
        try:
            last = IntrinsicReward.load(place).updates
            table.add("kills: saving a bonus", f"kill {trial}", "whole")
        except (StorageError, ValueError) as error:
            table.add("kills: saving a bonus", f"kill {trial} after {last} saves: {error}", "lost")


def _same(one: object, other: object) -> str:
    return "whole" if one == other else "lost"


def _end_of_training(folder: Path) -> object:
    newest = max(state for state in (folder / "checkpoints").iterdir() if state.name.isdigit())
    arrays, _ = read_arrays(newest, "agents")
    return {name: array.tobytes() for name, array in arrays.items()}, (folder / "metrics.jsonl").read_bytes()


def _end_of_comparison(folder: Path) -> object:
    return [_end_of_training(file.parent) for file in sorted(folder.glob("*/config.json"))]


def _arrays(folder: Path, names: str = "*.npy") -> dict[str, bytes]:
    """The arrays of a folder; in its card a date stands."""
    return {file.name: file.read_bytes() for file in folder.glob(names)}


def _saved(folder: Path, before: Mapping[str, bytes]) -> bool:
    """Whether there is another card."""
    return _arrays(folder, "card.json") != before


def _files(folder: Path) -> dict[str, int]:
    """Every file with its time of change."""
    found = {}
    for file in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found[str(file)] = file.stat().st_mtime_ns
    return found


def _changed(folder: Path, before: Mapping[str, int]) -> bool:
    """Whether a process has written something."""
    return _files(folder) != before


# Files that are damaged.


class _Warnings(logging.Handler):
    """Keeps what is said while something is read."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def try_corruptions(table: Table, rng: random.Random, folder: Path, corruptions: int) -> None:
    """Damage files of a training run, of data and of a saved bonus, one at a time, and read them."""
    made = make_stored(folder)
    warnings = _Warnings()
    logger = logging.getLogger("elden")
    logger.addHandler(warnings)
    logger.propagate = False
    originals = {name: read(folder / name) for name, read in made.items()}
    for trial in range(corruptions):
        name = rng.choice([*made])
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder / name, copy)
        what = damage(rng, copy)
        warnings.said.clear()
        outcome = outcome_of(made[name], copy, originals[name], warnings.said)
        table.add(f"corruptions: {name}", f"{trial}: {what}", outcome)
    logger.removeHandler(warnings)
    logger.propagate = True


def make_stored(folder: Path) -> dict[str, Callable[[Path], object]]:
    """One of everything that is written, and how each is read. Nothing is trained: the states hold made-up arrays."""
    command: Any = parse([*_TRAIN, str(folder / "training")])
    training = TrainingRun(command.world, command.config, folder / "training")
    stages = [f"stage/{name}" for name in training.world.stage_names]
    names = ["episode/success", "episode/success_solvable", "episode/normalized_stage", *stages]
    steps, states = training.config.loop.steps_per_iteration, training.states
    for number in (1, 2, 3):
        training.folder.log(number * steps, {name: [0.5, 0.25] for name in names})
        arrays = {"a": np.arange(50.0) * number, "b": np.full(7, number)}
        states.save(number, arrays, {"metrics": training.folder.seal(), "clock": {"compile_s": 1.0, "train_s": 2.0}})
    training.folder.close()
    collect(make("chain", depth=2, noisy=0), CollectConfig(500, chunk_episodes=8), folder / "data")
    write_arrays(folder / "bonus", "bonus", {"a": np.arange(9), "b": np.zeros(3)}, {"updates": 3})
    return {"training": _read_training, "data": _read_data, "bonus": _read_bonus}


def _read_training(folder: Path) -> object:
    training = TrainingRun.open(folder)
    lines = training.metrics()
    agents = Agents.read(folder, "rnd").numbers()
    kept = training.states.restore(lambda: {"a": np.zeros(50), "b": np.zeros(7, np.int64)})
    state = None if kept is None else (kept.number, [np.asarray(leaf).tobytes() for leaf in kept.tree.values()])
    return lines, repr(training.config), training.world.name, state, agents["env_steps"]


def _read_data(folder: Path) -> object:
    data = load_dataset(folder)
    return [part.obs.tobytes() for part in (data.train, data.held_out)], json.dumps(dict(data.card))


def _read_bonus(folder: Path) -> object:
    arrays, card = read_arrays(folder, "bonus")
    return {name: array.tobytes() for name, array in arrays.items()}, card


def damage(rng: random.Random, folder: Path) -> str:
    """Damage one of the files in a folder at random, and say how."""
    file = rng.choice(sorted(file for file in folder.rglob("*") if file.is_file() and "tb" not in file.parts))
    content = bytearray(file.read_bytes())
    place = rng.randrange(len(content)) if content else 0
    how = rng.choice(("bit", "cut", "hole", "garbage", "empty", "gone", "exchanged", "nested", "pipe", "link"))
    if how == "bit" and content:
        content[place] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del content[place:]
    elif how == "hole":
        del content[place : place + rng.randrange(1, 400)]
    elif how == "garbage":
        content[place : place + 8] = rng.randbytes(8)
    elif how == "empty":
        content.clear()
    elif how == "nested":
        content = bytearray(b"[" * 100_000)
    elif how == "exchanged":
        others = sorted(other for other in folder.rglob(f"*{file.suffix}") if other.is_file())
        content = bytearray(rng.choice(others).read_bytes())
    file.unlink()
    if how == "pipe":
        os.mkfifo(file)
    elif how == "link":
        file.symlink_to("/dev/zero")
    elif how != "gone":
        file.write_bytes(bytes(content))
    return f"{file.relative_to(folder)} {how}"


def outcome_of(read: Callable[[Path], object], folder: Path, original: object, said: list[str]) -> str:
    """What comes of reading a damaged folder."""
    try:
        found = read(folder)
    except (StorageError, ValueError) as error:
        return "refused" if len(str(error).splitlines()) == 1 else "traceback"
    except Exception:
        return "traceback"
    return "noticed" if said else "whole" if found == original else "silent"


# Links, and a disk that is full.


def try_links(table: Table, folder: Path) -> None:
    """Put links in the place of everything in a run folder; what they lead to must stay as it is."""
    make_stored(folder)
    source, precious = folder / "training", folder / "precious"
    shutil.copytree(source, precious)
    before = _content(precious)
    for place in sorted(entry.relative_to(source) for entry in source.rglob("*")):
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        if (copy / place).is_dir():
            shutil.rmtree(copy / place)
        (copy / place).unlink(missing_ok=True)
        (copy / place).symlink_to(precious / place)
        outcome = outcome_of(_start_over, copy, None, [])
        table.add("links", str(place), "lost" if _content(precious) != before else _refused_only(outcome))


def _start_over(folder: Path) -> object:
    TrainingRun.open(folder).start_over()
    return "started over"


def _refused_only(outcome: str) -> str:
    return outcome if outcome in ("refused", "traceback") else "silent"


def _content(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@contextlib.contextmanager
def _full_after(syncs: int) -> Iterator[None]:
    """Let the disk be full, as it were, after some files have been written."""
    real, left = os.fsync, iter(range(syncs))

    def sync(file: int) -> None:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        real(file)

    with patch("os.fsync", sync):
        yield


def try_full_disk(table: Table, folder: Path) -> None:
    """Fill the disk at every sync of a writing; the one before must be whole, and the message say what is wrong."""
    arrays = {name: np.arange(10) for name in "abc"}
    states = Checkpoints(folder / "states", "agents", {})
    states.save(1, arrays)
    write_arrays(folder / "bonus", "bonus", arrays, {"number": 1})
    writings: dict[str, Callable[[], None]] = {
        "bonus": lambda: write_arrays(folder / "bonus", "bonus", {"a": np.zeros(3)}, {"number": 2}),
        "state": lambda: states.save(2, arrays),
        "file": lambda: write_json(folder / "file.json", {"number": 2}),
    }
    for name, write in writings.items():
        for syncs in range(20):
            write_json(folder / "file.json", {"number": 1})
            try:
                with _full_after(syncs):
                    write()
                break
            except OSError as error:
                outcome = "refused" if "the disk is full" in str(error) else "traceback"
            numbers = (
                read_arrays(folder / "bonus", "bonus")[1]["number"],
                states.numbers[-1],
                json.loads((folder / "file.json").read_text())["number"],
            )
            table.add("disk full", f"{name} after {syncs} syncs", outcome if set(numbers) <= {1, 2} else "lost")


def try_read_only(table: Table, folder: Path) -> None:
    """Run commands in folders that may not be written to; a line must say so, and nothing in them may change."""
    make_stored(folder)
    run = folder / "training"
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o555 if place.is_dir() else 0o444)
    before = _content(folder)
    new = str(folder / "new")
    commands: tuple[tuple[str, ...], ...] = (
        ("resume", str(run), "--steps", "1M"),
        ("resume", str(run), "--start-over"),
        ("evaluate", str(run), "--episodes", "2"),
        (*_TRAIN, new),
        (*_COLLECT, new),
        (*_COMPARE, new),
        ("detect", "thawing", "--preset", "quick", "--out", new),
    )
    for words in commands:
        obeying = [sys.executable, "-c", _OBEY_PERMISSIONS, *words]
        ended = subprocess.run(obeying, env=_environment(), capture_output=True, text=True, check=False)
        said = ended.stdout + ended.stderr
        outcome = "traceback" if "Traceback" in said else "refused" if ended.returncode == 2 else "silent"
        table.add("read-only", " ".join(words[:2]), outcome if _content(folder) == before else "lost")


# Command lines that are made up, and environments that misbehave.


def try_lines(table: Table, seed: int, lines: int) -> None:
    """Give random command lines, most of them wrong; what is accepted is not run."""
    from fuzz_command_line import fuzz

    tally = fuzz(lines, seed)
    bad = [*tally.tracebacks, *tally.unclear, *tally.slow]
    outcomes = [("", "whole")] * tally.accepted + [("", "refused")] * tally.refused
    for what, outcome in [*outcomes, *((line, "traceback") for line in bad)]:
        table.add("command lines", what, outcome)


def try_environments(table: Table) -> None:
    """Step environments that break the rules, each in processes of its own."""
    from bad_environments import rows

    for row in rows():
        wrong = "traceback" if row.traceback else "silent"
        table.add("bad environments", f"{row.name}: {row.said}", "refused" if row.refused else wrong)
        if row.left:
            table.add("bad environments", f"{row.name}: {row.left} processes", "left")


if __name__ == "__main__":
    main(tyro.cli(Args))
