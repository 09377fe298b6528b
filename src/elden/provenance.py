"""Where a number comes from: the command, the versions, the device and the date that go with every result."""

import datetime
import os
import platform
import shlex
import sys
from importlib.metadata import version

import jax

from elden import __version__


def provenance(command: str | None = None) -> dict[str, str | int]:
    """What a results file must hold beside its numbers.

    Args:
        command: The command line; None takes the one of this process.
    """
    device = jax.devices()[0]
    return {
        "command": command if command is not None else shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        "elden": __version__,
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "python": platform.python_version(),
        "device": f"{device.platform}: {device.device_kind}",
        "cpu_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
