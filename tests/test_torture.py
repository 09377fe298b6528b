"""A small sample of `make torture`."""

import random
import runpy
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "torture.py"
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="a source distribution has no tools")


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


def test_nothing_is_lost_and_nothing_damaged_is_taken_without_a_word(tool: dict[str, Any], tmp_path: Path) -> None:
    table = tool["Table"]()
    for part in ("files", "links", "disk"):
        (tmp_path / part).mkdir()
    tool["try_corruptions"](table, random.Random(0), tmp_path / "files", 60)
    tool["try_links"](table, tmp_path / "links")
    tool["try_full_disk"](table, tmp_path / "disk")
    assert table.wrong == []
    assert table.counts["links"].keys() == {"refused"}
    assert table.counts["disk full"].keys() == {"refused"}
    assert sum(counts.total() for part, counts in table.counts.items() if part.startswith("corruptions")) == 60
