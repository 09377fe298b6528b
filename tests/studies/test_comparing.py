"""Comparing bonuses: processes side by side, how agents are read from their run folders, tables, and the command."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elden.cli import main
from elden.cli.arguments import parse
from elden.cli.compare import Compare
from elden.cli.errors import UsageError
from elden.cli.grid import Contender, WorldEntry, cells, folder_name, training_words
from elden.cli.train import Train
from elden.storage.folder import RunFolder
from elden.storage.plain import plain
from elden.storage.resumable import Deadline
from elden.studies.exploration import Agents, compare, comparison
from elden.studies.processes import Job, run_jobs
from elden.training.run import TrainingRun
from elden.viewing import Line, bonus_curves, running_mean, stage_bars
from elden.viewing.style import bonus_colors
from elden.worlds.base import World


def job(name: str, code: str) -> Job:
    return Job(name, (sys.executable, "-c", code))


def test_exit_codes_and_words_of_every_command_are_kept(tmp_path: Path) -> None:
    codes = run_jobs([job("good", "print('fine')"), job("bad", "raise SystemExit(3)")], tmp_path)
    assert codes == {"good": 0, "bad": 3}
    assert (tmp_path / "good.log").read_text() == "fine\n"


def test_no_more_than_so_many_run_at_once(tmp_path: Path) -> None:
    looks: list[list[str]] = []

    def look(names: Sequence[str]) -> None:
        looks.append(list(names))

    run_jobs([job(f"{i}", "import time; time.sleep(0.6)") for i in range(5)], tmp_path, at_once=2, look=look)
    assert max(map(len, looks)) == 2
    assert {name for names in looks for name in names} == {f"{i}" for i in range(5)}


CHILD = """
import os, signal, sys, time
from elden.lifeline import follow_standard_input
def end(*_):
    open(sys.argv[1], "w").write("kept")
    os._exit(0)
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, end)
follow_standard_input()
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = """
import signal, sys
from pathlib import Path
from elden.studies.processes import Job, run_jobs
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell script
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
run_jobs([Job("a", (sys.executable, "-c", *sys.argv[2:]))], Path(sys.argv[1]))
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_commands_end_with_the_process_that_started_them(tmp_path: Path, how: signal.Signals) -> None:
    kept = tmp_path / "kept"
    words = [sys.executable, "-c", PARENT, str(tmp_path), CHILD, str(kept)]
    parent = subprocess.Popen(words, start_new_session=True)
    log, limit = tmp_path / "a.log", time.monotonic() + 60
    while not (log.exists() and log.read_text().endswith("\n")) and time.monotonic() < limit:
        time.sleep(0.05)
    child = int(log.read_text())
    parent.send_signal(how)
    parent.wait(30)
    while _lives(child) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not _lives(child)
    assert kept.read_text() == "kept"


def _lives(pid: int) -> bool:
    """Whether a process is there that is not the child of anybody alive, and has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def test_a_deadline_is_handed_on_and_nothing_begins_after_it(tmp_path: Path) -> None:
    say = "import sys, time; print(sys.argv[1:]); time.sleep(1.2)"
    codes = run_jobs([job("first", say), job("late", say)], tmp_path, at_once=1, deadline=Deadline.after(1.0))
    assert codes == {"first": 0}
    option, seconds = json.loads((tmp_path / "first.log").read_text().replace("'", '"'))
    assert (option, float(seconds)) == ("--time-limit-s", 1.0)


def test_an_interruption_reaches_every_process_once(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "def end(*_): print('kept'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('here', flush=True)\n"
        "time.sleep(60)\n"
    )

    def look(_: object) -> None:
        if all((tmp_path / f"{name}.log").read_text() == "here\n" for name in ("a", "b")):
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_jobs([job("a", code), job("b", code)], tmp_path, look=look)
    assert time.monotonic() - began < 30
    assert [(tmp_path / f"{name}.log").read_text() for name in ("a", "b")] == ["here\nkept\n"] * 2


def agents(success: list[list[float]], contender: str = "elden", world: str = "thawing") -> Agents:
    values = np.array(success)
    final = [{"success_rate_solvable": float(value)} for value in values[-1]]
    summary = {"seeds": final, "steps_per_s": 1.0, "compile_s": 1.0, "wall_s": 1.0, "command": "", "device": ""}
    steps = np.arange(1, len(values) + 1) * 100
    stages = {"one": np.ones(values.shape[1]), "two": values[-1]}
    return Agents(world, contender, {}, {**summary, "date": ""}, steps, values, values, stages)


def test_steps_to_a_level_are_those_of_the_running_mean() -> None:
    rising = agents([[0.0, 0.0], [0.5, np.nan], [1.0, 0.2], [0.9, 0.7], [0.9, 0.9], [1.0, 0.9]])
    np.testing.assert_array_equal(rising.steps_to(0.95), [600, np.nan])
    np.testing.assert_array_equal(rising.steps_to(0.25), [200, 400])


def test_running_means_are_over_four_rollouts_however_long_the_training() -> None:
    for length in (8, 400):
        values = np.zeros((length, 1))
        values[4:] = 1.0
        assert running_mean(values)[3:9, 0].tolist() == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0][: length - 3]


def test_a_table_counts_who_solved_and_shows_the_worst() -> None:
    table = comparison([agents([[0.96, 0.2], [0.97, 0.2]]), agents([[0.0, 0.0], [0.1, 0.0]], "none")])
    assert table.rows[0][:5] == ("elden", "1 of 2", "0.58", "0.20", "100")  # half of them: the median is known
    assert table.rows[1][:5] == ("none", "0 of 2", "0.05", "0.00", "never")
    solved = comparison([agents([[0.96, 0.96, 0.2], [0.97, 0.97, 0.2]])])
    assert solved.rows[0][4] == "100"
    assert table.bold == {(0, 2)}


def test_a_row_of_a_table_is_read_back_as_it_was_and_can_be_cut() -> None:
    one = agents([[0.0, 0.1], [0.5, np.nan], [1.0, 0.2], [0.9, 0.7]])
    row = json.loads(json.dumps(plain(replace(one, notes={"commit": "abc"}).numbers()), allow_nan=False))
    again = Agents.load(row)
    assert plain(again.numbers()) == row
    assert again.notes == {"commit": "abc"}
    assert again.until(400) is again
    cut = again.until(300)
    np.testing.assert_array_equal(cut.success, one.success[:3])
    assert (cut.final.tolist(), cut.whole, list(cut.by_stage)) == ([1.0, 0.2], True, ["one", "two"])
    assert cut.stages_reached == pytest.approx(0.6)
    # Read back and cut again, it is still known how far the training went.
    twice = Agents.load(json.loads(json.dumps(plain(cut.numbers())))).until(200)
    assert (twice.numbers()["env_steps"], twice.numbers()["went_on"]) == (200, 400)
    with pytest.raises(ValueError, match="the first rollout of elden ends at 100"):
        cut.until(50)
    # A training run that was stopped has no summary, and still none when it is read back; its command stays with it.
    stopped = Agents.load({**row, "finished": False, "command": "elden train"})
    assert (stopped.summary, stopped.numbers()["finished"], stopped.numbers()["command"]) == ({}, False, "elden train")
    assert not stopped.whole
    assert stopped.until(200).whole
    assert not stopped.until(200).numbers()["finished"]


def test_figures_have_a_panel_for_each_world_and_a_line_for_each_agent() -> None:
    all_agents = [
        agents([[0.1, 0.2], [0.9, np.nan]], name, world) for world in ("a", "b") for name in ("elden", "none")
    ]
    figure = bonus_curves([Line(each.world, each.contender, each.steps, each.success) for each in all_agents], "title")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b"]
    assert [len(axes.lines) for axes in figure.axes] == [2 * (2 + 1)] * 2
    bars = stage_bars({(each.world, each.contender): each.by_stage for each in all_agents}, "title")
    heights = [[patch.get_height() for patch in axes.patches] for axes in bars.axes]  # type: ignore[attr-defined]
    assert heights[0] == pytest.approx([1.0, 0.9, 1.0, 0.9])


def test_every_contender_has_a_colour_of_its_own() -> None:
    names = ["elden", "no gate", "none", "no once", "cai", "bare"]
    assert len(set(bonus_colors(names).values())) == len(names)
    assert bonus_colors(names)["elden"] == bonus_colors(["elden"])["elden"]


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="no agents"):
        bonus_curves([], "title")
    with pytest.raises(ValueError, match="no agents"):
        stage_bars({}, "title")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"worlds": ("thawin",)}, "did you mean 'thawing'"),
        ({"bonuses": ("eldn",)}, "did you mean 'elden'"),
        ({"bonuses": ()}, "nothing to compare"),
        ({"bonuses": ("none", "none")}, "name something twice"),
        ({"variants": ("no gate=--bonus none", "no-gate=--bonus cai")}, "name something twice"),
        ({"variants": ("no gate",)}, "write a name and options"),
        ({"jobs": 0}, "--jobs 0 given"),
        ({"worlds": ("chains --depth 3",)}, "did you mean 'chain'"),
        ({"worlds": ("hard=chan --depth 3",)}, "did you mean 'chain'"),
        ({"worlds": ("=chain",)}, "write a world with options"),
        ({"worlds": ("",)}, "write a world with options"),
        ({"worlds": ("chain '--depth 3",)}, "cannot be read: No closing quotation"),
        ({"worlds": ("chain --out here",)}, "has its own folder"),
        ({"worlds": ("chain --bonus=cai",)}, "bonuses are the rows"),
        ({"worlds": ("a=chain", "a=thawing")}, "name something twice: a"),
        ({"worlds": ("chain --depth 3", "a=chain --depth=3")}, "name something twice: chain-depth-3"),
        (
            {"worlds": ("chain", "chain --depth 3"), "variants": ("depth 3 x=--seeds 2", "x=--seeds 2")},
            "name something twice: chain-depth-3-x",
        ),
        ({"variants": ("a=--bonus 'x",)}, "cannot be read"),
        ({"worlds": ("chain --wandb here",)}, "elden train logs there"),
    ],
)
def test_impossible_comparisons_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Compare(**options)  # type: ignore[arg-type]


def test_a_variant_is_a_name_with_options() -> None:
    variant = Compare(bonuses=(), variants=("no gate = --bonus.gate.kind none",)).contenders[0]
    assert variant == Contender("no gate", ("--bonus.gate.kind", "none"))


def test_a_world_of_a_comparison_has_options_and_may_have_a_name() -> None:
    plain_world = WorldEntry.parse("thawing")
    assert plain_world == WorldEntry("thawing", "thawing")
    entry = WorldEntry.parse("chain  --depth=6 --noisy 2")  # an option with = is no name
    assert entry == WorldEntry("chain --depth=6 --noisy 2", "chain", ("--depth=6", "--noisy", "2"))
    named = WorldEntry.parse("hard chain = chain --depth 6 --noisy 2")
    assert (named.title, named.world) == ("hard chain", "chain")
    elden = Contender.bonus("elden")
    assert folder_name(plain_world, elden) == "thawing-elden"  # as it was before worlds had options
    assert folder_name(named, elden) == folder_name(entry, elden) == "chain-depth-6-noisy-2-elden"
    long = [WorldEntry("a", "chain", ("--depth", "1" * 200, end)) for end in "xy"]
    assert len({each.slug for each in long}) == 2
    assert max(len(each.slug) for each in long) < 140


def test_options_of_a_world_take_the_place_of_common_ones() -> None:
    common = Compare(steps=100).options
    words = training_words(WorldEntry.parse("chain --steps 7 --preset=paper"), Contender.bonus("cai"), common)
    assert (words.count("--steps"), words[words.index("--steps") + 1]) == (1, "7")
    assert "plus" not in words
    with pytest.raises(ValueError, match="a in chain --steps 7: --steps is given both by the world and by the row"):
        cells([WorldEntry.parse("chain --steps 7")], [Contender("a", ("--steps", "8"))], common)
    for option in ("--save-every-s=5", "--iterations-per-call", "--wandb", "--out", "--time-limit-s"):
        with pytest.raises(UsageError, match="is no option of a world or a row"):
            cells([WorldEntry.parse("chain")], [Contender("a", ("--bonus", "none", option, "1"))], common)


def test_options_that_a_world_does_not_have_are_refused_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["compare", "--bonuses", "none", "--out", str(out), "--worlds", "chain --depth 3"]
    for entry, said in (
        ("chain --dept 3", "no option '--dept'; did you mean '--depth'"),
        ("carwash --depth 3", "no option '--depth'"),
        ("chain --depth 0", "depth"),
        ("chain hard", "one word too many"),
    ):
        assert main([*words, entry]) == 2
        error = capsys.readouterr().err
        assert f"none in {entry}: " in error
        assert said in error
    assert not out.exists()


def begun(folder: Path, steps: int = 400, finished: bool = True) -> None:
    """A run folder of a tiny training, with metrics and results that are made up."""
    command = parse(["train", "chain", "--depth", "2", "--bonus", "none", "--seeds", "2", "--steps", str(steps)])
    assert isinstance(command, Train)
    assert isinstance(command.world, World)
    training = TrainingRun(command.world, command.config, folder)
    for step in range(100, 500, 100):
        names = ("episode/success_solvable", "episode/normalized_stage", "stage/link0", "stage/link1")
        training.folder.log(step, {name: [1.0, step / 500] for name in names})
    if finished:
        numbers: dict[str, object] = {"seeds": [], "steps_per_s": 1.0, "compile_s": 1.0, "wall_s": 1.0}
        training.folder.write_summary({**numbers, "command": f"elden train --out {folder}", "device": "", "date": ""})
    training.folder.close()


def test_a_copied_folder_is_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    begun(here / "chain-depth-2-none")
    words = ["compare", "--worlds", "short=chain --depth 2", "--bonuses", "none", "--seeds", "2", "--steps", "400"]
    assert main([*words, "--out", str(here)]) == 0
    shutil.copytree(here, there)
    shutil.rmtree(here)
    began = (there / "chain-depth-2-none" / "summary.json").stat().st_mtime_ns
    assert main([*words, "--out", str(there)]) == 0  # nothing is left to train
    assert not list((there / "logs").iterdir())
    assert (there / "chain-depth-2-none" / "summary.json").stat().st_mtime_ns == began
    assert "short, 400 steps of each agent" in capsys.readouterr().out
    for file in ("config.json", "metrics.jsonl"):
        assert str(tmp_path) not in (there / "chain-depth-2-none" / file).read_text()
    table = json.loads((there / "table.json").read_text())
    assert table["rows"][0]["world_card"]["options"]["depth"] == 2
    cell = {key: table["map"][0][key] for key in ("world", "contender", "solved", "agents", "median_steps", "steps")}
    assert list(cell.values()) == ["short", "none", 1, 2, 100, 400]
    assert "1/2 [0.01, 0.99], 100" in (there / "map.md").read_text()


def test_a_report_shows_what_is_there_and_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "compare",
        "--worlds",
        "short=chain --depth 2",
        "--bonuses",
        "none",
        "rnd",
        "--seeds",
        "2",
        "--steps",
        "400",
    ]
    words += ["--report-only", "--out", str(tmp_path)]
    assert main(words) == 2
    assert "no training run of this comparison has begun" in capsys.readouterr().err
    nowhere = tmp_path / "nowhere"
    assert main([*words[:-1], str(nowhere)]) == 2
    assert f"there is no folder {nowhere}" in capsys.readouterr().err
    assert not nowhere.exists()
    begun(tmp_path / "chain-depth-2-none", finished=False)
    assert main(words) == 0
    assert not list((tmp_path / "logs").iterdir())
    (cell,) = json.loads((tmp_path / "table.json").read_text())["map"]
    assert (cell["contender"], cell["finished"]) == ("none", False)
    assert "not begun: chain-depth-2-rnd" in capsys.readouterr().out


def test_tables_of_parts_of_a_grid_are_joined(tmp_path: Path) -> None:
    for part, world, steps in (("a", "one=chain --depth 2", 400), ("b", "two=chain --depth 2", 400)):
        begun(tmp_path / part / "chain-depth-2-none", steps)
        options = ["--seeds", "2", "--steps", str(steps)]
        compare(cells([WorldEntry.parse(world)], [Contender.bonus("none")], options), tmp_path / part)
    tables = [str(tmp_path / part / "table.json") for part in "ab"]

    def join(*files: str) -> subprocess.CompletedProcess[str]:
        script = str(Path(__file__).parents[2] / "tools" / "join_comparisons.py")
        flags = [word for word in files if word.startswith("--")]
        words = [sys.executable, script, "--out", str(tmp_path / "all"), *flags, "--tables", *files[len(flags) :]]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    assert "none in one; give each once" in join(tables[0], tables[0]).stderr
    assert join("--later-wins", tables[0], tables[0]).returncode == 0
    done = join(*tables)
    assert done.returncode == 0, done.stderr
    joined = json.loads((tmp_path / "all" / "table.json").read_text())
    assert [cell["world"] for cell in joined["map"]] == ["one", "two"]
    assert (tmp_path / "all" / "map.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_training_that_was_stopped_goes_on_in_a_copy(tmp_path: Path) -> None:
    tiny = "--loop.num-envs 4 --loop.rollout 20 --loop.warmup-steps 0 --steps 240"
    words = ["compare", "--worlds", f"short=chain --depth 2 {tiny}", "--bonuses", "none", "--seeds", "2"]
    here, there, whole = (tmp_path / name for name in ("here", "there", "whole"))
    assert main([*words, "--time-limit-s", "1", "--out", str(here)]) == 75
    shutil.copytree(here, there)
    shutil.rmtree(here)
    (run,) = there.glob("chain-*")
    assert 0 < len((run / "metrics.jsonl").read_text().splitlines()) < 3
    assert main([*words, "--out", str(there)]) == 0
    assert main([*words, "--out", str(whole)]) == 0
    assert (run / "metrics.jsonl").read_text() == (whole / run.name / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_a_comparison_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = "--loop.num-envs 4 --loop.rollout 20 --loop.warmup-steps 0 --steps 160"
    words = ["compare", "--worlds", "thawing", "--bonuses", "--variants", f"plain=--bonus none {tiny}"]
    words += ["--seeds", "2", "--out", str(tmp_path)]
    assert main(words) == 0
    assert "plain" in capsys.readouterr().out
    row = json.loads((tmp_path / "table.json").read_text())["rows"][0]
    lines = [json.loads(line) for line in (tmp_path / "thawing-plain" / "metrics.jsonl").read_text().splitlines()]
    assert (row["env_steps"], len(row["success_solvable"])) == (160, 2)
    assert row["curve"]["success_solvable"] == [line["episode/success_solvable"] for line in lines]
    assert row["training"]["bonus_name"] == "none"
    for name in ("curves.png", "stages.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert main([*words, "--seed", "5"]) == 2  # a folder of another training run is no result of this one
    assert "holds another run" in capsys.readouterr().err
    before = (tmp_path / "thawing-plain" / "summary.json").stat().st_mtime_ns
    assert main(words) == 0  # nothing is trained again
    assert (tmp_path / "thawing-plain" / "summary.json").stat().st_mtime_ns == before
    (tmp_path / "thawing-plain" / "summary.json").unlink()  # as if it had been stopped after its last step
    contender = Compare(bonuses=(), variants=(words[5],)).contenders[0]
    grid = cells([WorldEntry.parse("thawing")], [contender], ["--seeds", "2"])
    found, left = compare(grid, tmp_path, deadline=Deadline.after(0))
    assert left == {"thawing-plain": None}
    assert comparison(found).rows[0][0] == "plain (until step 160)"
    said = (tmp_path / "table.md").read_text()
    assert "as far as it has" in said
    assert not json.loads((tmp_path / "table.json").read_text())["rows"][0]["finished"]


def test_a_request_to_terminate_stops_the_trainings_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pids: list[int] = []

    def waits(jobs: Sequence[Job], logs: Path, at_once: int, deadline: Deadline, look: object) -> dict[str, int]:
        code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"

        def terminate(_: object) -> None:
            said = (logs / "waits.log").read_text()
            if said:
                pids.append(int(said.split()[0]))
                os.kill(os.getpid(), signal.SIGTERM)

        return run_jobs([job("waits", code)], logs, at_once, deadline, terminate)

    monkeypatch.setattr("elden.studies.exploration.run_jobs", waits)
    assert main(["compare", "--worlds", "chain", "--bonuses", "none", "--out", str(tmp_path)]) == 130
    assert "continues from what was kept" in capsys.readouterr().out
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_what_failed_or_was_not_begun_is_told(tmp_path: Path) -> None:
    grid = cells([WorldEntry.parse("thawing")], [Contender.bonus("none")])
    assert compare(grid, tmp_path, deadline=Deadline.after(0)) == ([], {"thawing-none": None})
    assert not (tmp_path / "thawing-none").exists()
    with RunFolder(tmp_path / "thawing-none", grid[0].identity).locked():
        found, left = compare(grid, tmp_path)
    assert (found, left) == ([], {"thawing-none": 2})
    assert "another process is writing" in (tmp_path / "logs" / "thawing-none.log").read_text()
