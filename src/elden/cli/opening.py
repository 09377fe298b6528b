"""Options of the commands that open a run folder, which may come from somebody else."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from elden.cli.errors import UsageError, check_range
from elden.cli.worlds import shown_as
from elden.hosts.world import HostWorld, UntrustedModuleError
from elden.names import PREFIX
from elden.training.run import TrainingRun


@dataclass(frozen=True)
class OpeningOptions:
    """How the environment of a run is made again, where it is one of others."""

    trust: Annotated[str | None, shown_as("gym:MODULE", "none")] = None
    """Import the module of the run's environment, which may be any program. Needed for runs in gym:MODULE:ID alone; see
    docs/trust.md."""
    step_limit_s: Annotated[float | None, shown_as("SECONDS", "300")] = None
    """Seconds that an environment of others may take to be made, to be reset or for a step; 0 lets it take any time."""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.trust is not None and not self.trust.startswith(PREFIX):
            raise UsageError(f"--trust {self.trust} given; it takes gym:MODULE, such as gym:my_envs")
        if self.step_limit_s is not None:
            check_range("step-limit-s", self.step_limit_s, 0, 1e6)

    @contextmanager
    def allowing(self, command_line: str) -> Iterator[None]:
        """Say how a module that is not trusted can be allowed.

        Raises:
            UsageError: There is one; the message has the line that allows it.
        """
        try:
            yield
        except UntrustedModuleError as error:
            words, allowed = shlex.split(command_line), f"{PREFIX}{error.module}"
            if self.trust is not None:
                words = [word for word in words if word not in ("--trust", self.trust, f"--trust={self.trust}")]
            line = shlex.join([*words, "--trust", allowed])
            raise UsageError(f"{error}; if you trust it: {line}") from None


def resume_line(training: TrainingRun) -> str:
    """The command that continues a run."""
    words = ["elden", "resume", str(training.folder.path)]
    if isinstance(training.world, HostWorld) and training.world.config.module is not None:
        words += ["--trust", PREFIX + training.world.config.module]
    return shlex.join(words)
