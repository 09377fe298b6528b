"""The one error that the command line answers with a line instead of a traceback, and exit codes."""

BROKEN, STOPPED, INTERRUPTED = 1, 75, 130
"""Exit codes of work that cannot continue, of work whose time limit is over (EX_TEMPFAIL: try again), and of
work that was interrupted."""


class UsageError(ValueError):
    """A mistake of the user; the message is one line that says how to mend it."""


def check_range(option: str, value: int | float, low: int | float, high: int | float) -> None:
    """Refuse an option that does not lie between two values.

    Raises:
        UsageError: It does not.
    """
    if not low <= value <= high:
        raise UsageError(f"--{option} {value} given; it takes {low} to {high}")


def check_seed(seed: int) -> None:
    """Refuse a seed that would be cut down to 32 bits."""
    if not 0 <= seed < 2**32:
        raise UsageError(f"--seed {seed} given; it takes 0 to {2**32 - 1}")
