"""`elden reproduce`: the paper's tables, made again and printed beside the paper's numbers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from elden.cli.console import make_console
from elden.cli.detect import StudyOptions, refusals
from elden.cli.errors import UsageError
from elden.cli.running import stopping, study_progress
from elden.cli.worlds import shown_as
from elden.names import nearest_names
from elden.storage.resumable import Deadline
from elden.studies.paper import PAPER_WORLDS
from elden.studies.reproduce import TABLES, reproduce
from elden.studies.tables import EDGES, detection_table, skipped_lines
from elden.viewing import rich_table
from elden.worlds.registry import WORLDS, make


@dataclass(frozen=True)
class Reproduce(StudyOptions):
    """Make a table of the paper again (table1, table2), and print it beside the paper's numbers."""

    table: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar=f"{{{','.join(TABLES)}}}", help_behavior_hint="(required)")
    ] = ""
    """Which table: table1 compares detectors, table2 values of λ."""
    worlds: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{{{','.join(WORLDS)}}} [...]")] = tuple(
        name for name in PAPER_WORLDS if name != "kitchen"
    )
    """In which worlds. Kitchen, which takes about as long as both of these, and minecraft, which takes
    longer, must be named."""
    out: Annotated[Path | None, shown_as("PATH", "runs/TABLE-PRESET")] = None
    """Folder for the table and a run folder for each world."""

    def __post_init__(self) -> None:
        """Check the names."""
        super().__post_init__()
        if not self.table:
            raise UsageError(f"elden reproduce needs a table: {', '.join(TABLES)}")
        if self.table not in TABLES:
            raise UsageError(f"no table {self.table!r}; {nearest_names(self.table.lower(), TABLES)}")
        if not self.worlds or len(set(self.worlds)) < len(self.worlds):
            raise UsageError(f"--worlds {' '.join(self.worlds)} given; name at least one, and each once")
        if self.table == "table2" and "methods" in self.given:
            raise UsageError("--methods given, but table2 is about gradient alone")
        if self.table == "table2" and "train.penalty" in self.given:
            raise UsageError(f"--penalty {self.config.train.penalty} given, but table2 compares values of λ of its own")
        for world in self.worlds:
            try:
                made = make(world)
            except ValueError as error:
                raise UsageError(str(error)) from None
            self.resolved(made)

    def run(self, command_line: str) -> None:
        """Train and measure world after world, and print the table."""
        console = make_console()
        out = Path("runs") / f"{self.table}-{self.preset}" if self.out is None else self.out
        with refusals(out), study_progress(console) as tell, stopping(console):
            made = reproduce(
                self.table,
                self.preset,
                self.worlds,
                out,
                self.changes,
                models=self.models,
                deadline=Deadline.after(self.time_limit_s),
                progress=lambda world, what, done, total: tell(f"{world}: {what}", done, total),
                command=command_line,
                figures=self.figures,
            )
            for detection in made.detections:
                for edges in EDGES:
                    console.print(rich_table(detection_table(detection, edges=edges)))
                for granularity in detection.config.granularities:
                    # One world at a time: all of them side by side are too wide for a terminal.
                    console.print(rich_table(made.table(granularity, [detection.world.name])))
                for line in skipped_lines(detection):
                    console.print(line)
            console.print(f"\n{out / 'table.md'}")
