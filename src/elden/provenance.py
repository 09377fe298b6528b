"""Where a number comes from: the command, the versions, the device and the date that go with every result."""

import datetime
import functools
import hashlib
import os
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

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
        "code": code_digest(),
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "python": platform.python_version(),
        "device": f"{device.platform}: {device.device_kind}",
        "cpu_cores": cpu_cores(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def cpu_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def code_digest() -> str:
    """A short name for the code that runs: 12 hex digits of SHA-256 over the package's Python files and their paths.

    It tells results of one version from each other also where that code was never committed. For a checkout it is
    `python -c "from elden.provenance import code_digest; print(code_digest())"`. A process reads the files
    once, when it first asks.
    """
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]
