"""Random command lines, most of them wrong, and whether each is answered in a line.

python tools/fuzz_command_line.py --lines 10000 --out runs/fuzz.json

Lines are made from the index of all options: with mistyped names, missing values, and values that no option takes.
What is accepted is not run. A refusal is clear if it is one line on stderr, without control characters, with exit
code 2.
"""

import contextlib
import io
import random
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from elden.cli import main
from elden.cli.commands import COMMANDS
from elden.cli.index import index
from elden.names import HOST

_VALUES = {
    "int": ("0", "-1", "1", "7", "1M", "1e6", "1.5", "2k", "1e999", "99999999999999999999999", "-0", "1_000", "0x10"),
    "float": ("0", "-1", "0.5", "1e-9", "1e308", "1e309", "inf", "-inf", "nan", ".", "1,5", "0.1.2"),
    "value": ("", "none", "paper", "plus", "thawing", "elden", "True", "runs/x", "../..", "/", "a" * 300, "[1]", "{}"),
    "many": ("", "chain", "gradient", "pcmi", "thawing --size 3", "x=--bonus none", "'", '"', "--", "8"),
}
_ODD = ("", " ", "é", "\x1b[31m", "\u202e", "a\nb", "$(x)", "%s", "\\", "=", "--", "-", "None", "💥", "--help=1")
_PLACES = ("gym:", "gym::", "gym:a:b:c", "gym:CartPole-v1", "gym:os:X", "gym:\x1b[2J", "Thawing", "thawin", "runs/no")
_SLOW_S = 20.0


@dataclass
class Tally:
    """What became of the lines so far."""

    tried: int = 0
    accepted: int = 0
    refused: int = 0
    unclear: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)

    def totals(self) -> dict[str, int]:
        """Numbers alone."""
        return {
            "tried": self.tried,
            "accepted": self.accepted,
            "refused clearly": self.refused,
            "refused unclearly": len(self.unclear),
            "tracebacks": len(self.tracebacks),
            "slow": len(self.slow),
        }


def line(rng: random.Random) -> list[str]:
    """A random command line."""
    known = index()
    name = rng.choice(list(COMMANDS))
    world = rng.choice([*known.worlds, HOST])
    options = known.host if world == HOST else known.worlds[world]
    takes = {**known.commands[name].options.takes, **options.takes}
    if known.commands[name].world == "none":
        words = [rng.choice((*_PLACES, "table1", "runs/no"))] if rng.random() < 0.5 else []
        takes = dict(known.commands[name].options.takes)
    else:
        words = ["gym:elden/Chain-v0" if world == HOST else world]
    for _ in range(rng.randrange(5)):
        option = rng.choice(list(takes))
        words += _option(rng, _mistyped(rng, option) if rng.random() < 0.1 else option, takes[option])
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), rng.choice((*_ODD, *_PLACES)))
    name = _mistyped(rng, name) if rng.random() < 0.03 else name
    return [name, *words] if rng.random() < 0.95 else [*words, name]


def _option(rng: random.Random, option: str, takes: str) -> list[str]:
    """An option with what it takes, or with something else, or with nothing."""
    if takes == "nothing":
        return [option] if rng.random() < 0.9 else [f"{option}={rng.choice(_ODD)}"]
    kind = takes if rng.random() < 0.8 else rng.choice(list(_VALUES))
    values = [rng.choice(_VALUES[kind] if rng.random() < 0.85 else _ODD) for _ in range(rng.randrange(3) or 1)]
    if rng.random() < 0.05:
        return [option]
    if rng.random() < 0.4:
        return [f"{option}={values[0]}"]
    return [option, *(values if takes == "many" else values[:1])]


def _mistyped(rng: random.Random, word: str) -> str:
    place = rng.randrange(len(word))
    return word[:place] + rng.choice(("", "x", "-", "_", word[place] * 2, word[place].upper())) + word[place + 1 :]


@contextlib.contextmanager
def nothing_runs(accepted: list[str]) -> Iterator[None]:
    """Let commands that are accepted do nothing but say so."""

    def run(self: object, command_line: str) -> None:
        accepted.append(command_line)

    classes = [entry.load() for entry in COMMANDS.values()]
    before = [cls.run for cls in classes]
    for cls in classes:
        cls.run = run
    try:
        yield
    finally:
        for cls, known in zip(classes, before, strict=True):
            cls.run = known


def fuzz(lines: int, seed: int = 0) -> Tally:
    """Try so many random command lines.

    Args:
        lines: How many.
        seed: Decides which.
    """
    rng, tally, accepted = random.Random(seed), Tally(), list[str]()
    with nothing_runs(accepted):
        for _ in range(lines):
            words = line(rng)
            _try(words, tally, accepted)
    return tally


def _try(words: list[str], tally: Tally, accepted: list[str]) -> None:
    began, before, said = time.monotonic(), len(accepted), io.StringIO()
    tally.tried += 1
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = main(words)
    except Exception:
        tally.tracebacks.append(f"{words!r}: {traceback.format_exc()}")
        return
    finally:
        if time.monotonic() - began > _SLOW_S:
            tally.slow.append(repr(words))
    text = said.getvalue()
    if code == 0:
        tally.accepted += len(accepted) > before or bool({"-h", "--help"} & set(words))
        return
    if code == 2 and text.startswith("elden: ") and text.count("\n") == 1 and text[:-1].isprintable():
        tally.refused += 1
    else:
        tally.unclear.append(f"{words!r}: {code}: {text!r}")


@dataclass(frozen=True)
class Args:
    """Try random command lines, and print what became of them."""

    lines: int = 1000
    """How many."""
    seed: int = 0
    """Decides which."""
    out: Path | None = None
    """JSON file for the numbers, and for the lines that were not answered as they should be."""

    def run(self) -> None:
        """Try them."""
        from elden.provenance import provenance
        from elden.storage.files import write_json

        tally = fuzz(self.lines, self.seed)
        for bad in (*tally.tracebacks, *tally.unclear, *tally.slow):
            print(bad)
        print(tally.totals())
        if self.out is not None:
            card = {"kind": "fuzzed command lines", "provenance": provenance(), "totals": tally.totals()}
            write_json(self.out, {**card, "bad": [*tally.tracebacks, *tally.unclear, *tally.slow]})


if __name__ == "__main__":
    tyro.cli(Args, description=__doc__).run()
