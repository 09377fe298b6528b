"""Random command lines: each is accepted, or refused in a line. `tools/fuzz_command_line.py` tries many more."""

import runpy
from pathlib import Path

FUZZ = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "fuzz_command_line.py"), run_name="fuzz_command_line")


def test_random_command_lines_end_in_no_traceback() -> None:
    tally = FUZZ["fuzz"](100, seed=7)
    assert not tally.tracebacks
    assert not tally.unclear
    assert not tally.slow
    assert tally.accepted + tally.refused == tally.tried == 100
    assert 5 < tally.accepted < 60
