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


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device has not enough memory."""
    words = str(error)
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in words or "OUT_OF_MEMORY" in words


def of_device(error: RuntimeError) -> str | None:
    """The line that answers a device that is not there or has not enough memory; None for any other error."""
    words = str(error).strip()
    first = words.splitlines()[0] if words else ""
    if first.startswith("Unable to initialize backend"):
        return f"JAX finds no device of the kind that is asked for: {first}"
    if out_of_memory(error):
        return f"the device has not enough memory: {first}"
    return None


def check_platforms(asked: str) -> None:
    """Refuse devices that are asked for by JAX_PLATFORMS and are not there. Imports JAX.

    Raises:
        UsageError: They are not.
    """
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # the latter where support for the device is not installed
        words = str(error).strip().splitlines()
        why = words[0] if words else "JAX has no support for it installed"
        raise UsageError(
            f"JAX_PLATFORMS={asked} asks for a device that cannot be used here ({why}); without JAX_PLATFORMS what is"
            " there is taken"
        ) from None
