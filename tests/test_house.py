"""How the package is laid out: rooms import only from the rooms before them, and light things stay light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import elden

ROOT = Path(elden.__file__).parent
ROOMS = (
    *(
        "lazy",
        "names",
        "lifeline",
        "pytree",
        "provenance",
        "ahead",
        "optimise",
        "nn",
        "factors",
        "transitions",
        "registration",
    ),
    *("storage", "worlds", "hosts", "dynamics", "graphs", "bonuses", "agents", "training", "viewing", "studies"),
    *("api", "cli"),
)
"""The ground floor, then the rooms. A later one may import from an earlier one, when it is loaded, and never back."""


def imports() -> Iterator[tuple[str, str]]:
    """Each import of one of our modules by another when that is loaded: not inside a function, nor for types alone."""
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(("elden", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "elden":
                names = [f"elden.{alias.name}" for alias in node.names] if node.module == "elden" else [node.module]
                yield from ((name, str(imported)) for imported in names)
            elif isinstance(node, ast.Import):
                yield from ((name, alias.name) for alias in node.names if alias.name.split(".")[0] == "elden")


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_rooms_import_only_from_the_rooms_before() -> None:
    found = {(room(a), room(b)) for a, b in imports() if room(a) and room(a) != room(b)}
    assert {a for a, _ in found} | {b for _, b in found} <= {*ROOMS, "__main__", "__version__"}
    back = {(a, b) for a, b in found if a in ROOMS and b in ROOMS and ROOMS.index(a) <= ROOMS.index(b)}
    assert not back


def test_every_room_is_named() -> None:
    here = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert here - {"__init__", "__main__", "__pycache__"} <= set(ROOMS)


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("elden", {"jax", "PIL", "matplotlib", "tyro"}),
        ("elden.hosts.worker", {"jax"}),
        ("elden.worlds.carwash", {"PIL", "matplotlib", "elden.viewing"}),
        ("elden.bonuses.base", {"PIL", "elden.worlds", "elden.agents", "elden.training"}),
        ("elden.training.run", {"PIL", "matplotlib", "elden.studies", "elden.viewing"}),
    ],
)
def test_what_is_light_loads_nothing_heavy(module: str, without: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )
    assert module in loaded
    assert not loaded & without


def test_the_package_runs_as_a_module() -> None:
    said = subprocess.run([sys.executable, "-m", "elden", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"elden {elden.__version__}\n"


def test_the_index_of_results_is_up_to_date() -> None:
    tool = ROOT.parents[1] / "tools" / "results_index.py"
    if not (tool.parents[1] / "results").exists():
        pytest.skip("a source distribution has no results")
    program = f"import runpy; made = runpy.run_path({str(tool)!r}); print(made['page'](), end='')"
    page = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert (tool.parents[1] / "results" / "README.md").read_text() == page, "run: python tools/results_index.py"


def test_no_file_has_the_marks_of_a_merge() -> None:
    repository = Path(__file__).parents[1]
    texts = [file for pattern in ("*.md", "src/**/*.py", "docs/*.md") for file in repository.glob(pattern)]
    assert texts
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    assert not [file for file in texts for line in file.read_text().splitlines() if line.startswith(marks)]
