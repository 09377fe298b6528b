"""The command `elden`: look at a world, play it, train in it, detect dependencies in it, reproduce tables.

What takes long to load is imported when it is needed, so that `elden --version` does not wait for it.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from elden import __version__
from elden.cli.check import help_page, ordered
from elden.cli.commands import COMMANDS
from elden.cli.errors import BROKEN, INTERRUPTED, UsageError, check_platforms, of_device
from elden.lifeline import follow_standard_input
from elden.names import printable

__all__ = ["main", "run"]


def run() -> NoReturn:
    """Run the command line of this process, and end it."""
    follow_standard_input()
    code = main()
    if code == INTERRUPTED:
        # Computations may still be running, which an orderly end would pull the ground from under.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The words after `elden`; None takes those of this process.

    Returns:
        The exit code: 0, 1 for work that cannot continue, 2 for a mistake of the user (one line on stderr says
        which), 75 when a time limit stopped the work, 130 when interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        print(f"elden {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(help_page("Exploration via local dependencies.", {name: each.summary for name, each in COMMANDS.items()}))
        return 0
    # Independent runs are spread over devices; without this a CPU is one device, whatever the number of its cores.
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(os.cpu_count() or 1))
    try:
        ordered(words)  # mistyped names are refused before anything heavy is imported
        if os.environ.get("JAX_PLATFORMS"):
            check_platforms(os.environ["JAX_PLATFORMS"])
        from elden.cli.arguments import parse

        parse(words).run(shlex.join(["elden", *words]))
    except UsageError as error:
        print(f"elden: {printable(str(error))}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        line = of_device(error)
        if line is None:
            raise
        print(f"elden: {line}", file=sys.stderr)
        return BROKEN
    except BrokenPipeError:  # what reads our output has had enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (Python writes to it once more when it ends)
        return 0
    except KeyboardInterrupt:
        print("elden: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as stop:  # tyro, after it has printed a help page
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
