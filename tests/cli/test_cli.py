"""The command line: every world can be described, played and recorded, and mistakes are answered in one line."""

import contextlib
import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import jax
import numpy as np
import pytest
from cases import some_slow
from PIL import Image

import elden
from elden.cli import game, main
from elden.cli.arguments import parse
from elden.cli.commands import COMMANDS
from elden.cli.edges import EACH_OTHER, edge_groups, edge_lines, matrix_lines, off_diagonal, rule_lines
from elden.cli.episodes import Episode
from elden.cli.errors import UsageError
from elden.cli.index import FILE, made
from elden.cli.keys import COMMAND_KEYS, assign_keys, keys_in
from elden.cli.options import taken
from elden.cli.play import Play
from elden.cli.terminal import character_mode, read_keys
from elden.cli.train import Resume, Train
from elden.cli.video import Video, play_episode
from elden.factors import ACTION, Discrete, Entity, Factors, Variable
from elden.worlds.base import World, WorldOptionError
from elden.worlds.registry import WORLDS, make
from elden.worlds.rooms import Profile

NAMES = list(WORLDS)


def variants() -> list[World]:
    """Every registered world under every profile that it has."""
    worlds = []
    for name, cls in WORLDS.items():
        for profile in get_args(Profile) if "profile" in cls.option_names() else (None,):
            with contextlib.suppress(WorldOptionError):
                worlds.append(make(name) if profile is None else make(name, profile=profile))
    return worlds


VARIANTS = variants()
VARIANT_NAMES = [f"{world.name}-{getattr(world, 'profile', 'only')}" for world in VARIANTS]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    code = main(words)
    said = capsys.readouterr()
    return code, said.out, said.err


# Names, help and mistakes.


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"elden {elden.__version__}\n", "")


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_help_lists_the_subcommands(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert all(re.search(rf"^  {name} +\w", out, re.M) for name in COMMANDS)


@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in ("compare", "demo", "evaluate", "reproduce", "resume")]
)
def test_help_of_a_subcommand_lists_every_world(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert all(re.search(rf"• {name}\b", out) for name in WORLDS)


def test_a_device_that_is_not_there_is_answered_with_a_line() -> None:
    env = {**os.environ, "JAX_PLATFORMS": "tpu"}
    words = [sys.executable, "-m", "elden.cli", "info", "chain"]
    said = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    assert said.returncode == 2
    (line,) = said.stderr.splitlines()
    assert line.startswith("elden: JAX_PLATFORMS=tpu asks for a device that cannot be used here (")


@pytest.mark.parametrize("words", ["--steps 1e6", "--steps=1M", "--steps 1000k", "--steps 1_000_000", "--steps=1.0e+6"])
def test_a_million_steps_can_be_written_in_several_ways(words: str) -> None:
    command = parse(["train", "thawing", *words.split(), "--seeds", "2"])
    assert isinstance(command, Train)
    assert (command.config.loop.steps, command.config.seeds) == (1_000_000, 2)
    resume = parse(["resume", "runs/1M", *words.split()])
    assert isinstance(resume, Resume)
    assert (resume.steps, resume.folder) == (1_000_000, Path("runs/1M"))


@pytest.mark.parametrize("name", NAMES)
def test_help_of_a_world_lists_its_options(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, _ = run(capsys, "play", name, "--help")
    assert code == 0
    assert all(flag in out for flag in (*taken(WORLDS[name]), *taken(Play)))


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("plai", "no subcommand 'plai'; did you mean 'play'"),
        ("play carwsh", "no world 'carwsh'; did you mean 'carwash'?"),
        ("play --seed 3 Thaving", "no world 'Thaving'; did you mean 'thawing'"),
        ("play", "elden play needs a world: thawing, "),
        ("play carwash thawing", "'thawing' is one word too many"),
        ("info carwash --sise 9", "elden info carwash has no option '--sise'; did you mean '--size'"),
        ("video --sise 9", "elden video carwash has no option '--sise'; did you mean '--size'"),
        ("info empty --depth 3", "elden info empty has no option '--depth'"),
        ("play carwash --size 3", "size=3 is too small for carwash: its entities need at least 7"),
        ("play carwash --size twelve", "--size: 'twelve' is not a whole number"),
        ("play carwash --size", "--size needs a value"),
        ("play empty --size 1000000000", "size=1000000000 given; empty takes at most 256"),
        ("info empty --size 1G", "--size: '1G' is not a whole number (1000000, 1e6 or 1M)"),
        ("info empty --size 1.5", "--size: '1.5' is not a whole number"),
        (
            "train minecraft --grass=99999999999999999999999",
            "grass=99999999999999999999999 given; minecraft takes at most",
        ),
        ("train thawing --steps 1e13", "--steps 10000000000000 given; it takes 1 to 1000000000000"),
        ("train thawing --steps 1e12 --envs 1 --loop.rollout 1", "more rollouts than can be counted"),
        ("train thawing --steps 1e999999999", "--steps: '1e999999999' is not a whole number"),
        ("train thawing --steps nan", "--steps: 'nan' is not a whole number"),
        ("train thawing --seeds 1000M", "--seeds 1000000000 given"),
        (
            "train thawing --loop.intrinsic-weight inf",
            "--loop.intrinsic-weight inf given; it must be 0 or more, and finite",
        ),
        ("train thawing --ppo.entropy inf", "--ppo.entropy inf given; it must be 0 or more, and finite"),
        ("resume runs/some --steps 1e30", "given; it takes 1 to 1000000000000"),
        *(
            (f"{command}{'a' * 300}", "File name too long")
            for command in ("train chain --out ", "resume ", "evaluate ", "compare --out ", "demo --out ")
        ),
        ("play carwash --profile skill", "'skill'"),
        ("play thawing --profile primitives --goto path", "goto='path' given, but profile='primitives' has no goTo"),
        ("play thawing --seed -1", "--seed -1 given; it takes 0 to 4294967295"),
        ("play chain --depth 90", "this world has more actions than there are keys"),
        ("video --episodes 0", "--episodes 0 given; it takes 1 to"),
        ("video --epsilon much", "--epsilon: 'much' is not a number"),
        ("video --epsilon 1.5", "--epsilon 1.5 given; it takes 0 to 1"),
        ("video --tile 3", "--tile 3 given"),
        ("video --fps 0", "--fps 0.0 given"),
    ],
)
def test_mistakes_are_answered_in_one_line(capsys: pytest.CaptureFixture[str], line: str, answer: str) -> None:
    code, out, err = run(capsys, *line.split())
    assert code == 2
    assert out == ""
    assert err.startswith("elden: ")
    assert answer in err
    assert err.count("\n") == 1


def test_a_folder_that_cannot_be_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    code, _, err = run(capsys, "video", "--out", str(taken))
    assert code == 2
    assert err.count("\n") == 1
    assert "cannot be made a folder" in err


def test_interrupted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Video, command_line: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Video, "run", interrupt)
    assert run(capsys, "video") == (130, "", "elden: interrupted\n")


def test_options_stand_anywhere() -> None:
    expected = Play(make("carwash", profile="primitives", size=12), seed=4, keys="<")
    orders = (
        "play carwash --profile primitives --size 12 --seed 4 --keys <",
        "play --seed 4 --keys < carwash --size=12 --profile primitives",
        "play --size 12 --seed=4 --profile=primitives carwash --keys <",
    )
    assert all(parse(order.split()) == expected for order in orders)
    assert parse(["play", "thawing", "--max_steps", "3", "--pay-once"]) == Play(
        make("thawing", max_steps=3, pay_once=True)
    )


def test_a_film_draws_solvable_layouts_unless_told_otherwise() -> None:
    assert parse(["video"]) == Video(make("carwash", solvable_only=True))
    assert parse(["video", "--size", "9"]) == Video(make("carwash", solvable_only=True, size=9))
    assert parse(["video", "thawing"]) == Video(make("thawing", solvable_only=True))
    assert parse(["video", "thawing", "--no-solvable-only"]) == Video(make("thawing"))


@pytest.mark.parametrize("name", NAMES)
def test_no_option_of_a_world_hides_one_of_a_subcommand(name: str) -> None:
    for entry in COMMANDS.values():
        own = {option.name for option in fields(entry.load())}
        assert own.isdisjoint(WORLDS[name].option_names())


def test_the_index_of_options_is_that_of_the_classes() -> None:
    assert json.loads(FILE.read_bytes()) == made(), "run: python tools/option_index.py"


@pytest.mark.parametrize(
    "line",
    [
        *("--help", "--version", "plai", "play carwsh", "play", "info carwash --sise 9", "video thawing --size twelve"),
        *("train thawing --bonus.gat x", "train gym:", "train thawing --steps", "compare --worlds chain --sed 3"),
    ],
)
def test_help_and_mistyped_names_are_answered_before_anything_heavy_is_loaded(line: str) -> None:
    words = ["-c", "import sys, elden.cli\ncode = elden.cli.main()\nprint(code, *sys.modules)", *line.split()]
    said = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    code, *loaded = said.stdout.splitlines()[-1].split()
    assert int(code) == (0 if line.startswith("--") else 2)
    assert bool(said.stderr) == (int(code) == 2)
    assert not {"jax", "tyro", "rich", "PIL", "matplotlib"} & set(loaded)


# Edges in words.


def two_entities() -> Factors:
    bit = Discrete(2)
    return Factors((Entity("a", (Variable("x", bit), Variable("y", bit))), Entity("b", (Variable("z", bit),))))


def test_edges_in_words() -> None:
    factors = two_entities()
    graph = np.eye(3, 4, dtype=bool)
    assert edge_lines(factors, graph) == []
    graph[:2, 3] = graph[:2, 2] = True
    assert edge_lines(factors, graph) == ["a.x, a.y <- action, b.z"]
    assert edge_lines(factors, graph, short=True) == ["a.x,y <- action, b.z"]
    graph[0, 1] = graph[1, 0] = True
    assert edge_lines(factors, graph, short=True) == ["a.x,y <- action, b.z, each other"]
    graph[1, 0] = False
    assert edge_lines(factors, graph) == ["a.x <- action, a.y, b.z", "a.y <- action, b.z"]


@pytest.mark.parametrize("seed", range(5))
def test_groups_say_exactly_the_graph(seed: int) -> None:
    factors = make("carwash").factors
    names = factors.variable_names
    n = len(names)
    rng = np.random.default_rng(seed)
    # Few different rows, with and without the diagonal, so that there is something to group.
    rows = rng.random((3, n + 1)) < 0.3
    graph = rows[rng.integers(0, 3, n)] | (np.eye(n, n + 1) == 1)
    told = np.zeros((n, n + 1), bool)
    groups = edge_groups(factors, graph)
    for children, parents in groups:
        inside = [*children] if EACH_OTHER in parents else []
        for child, parent in itertools.product(children, [*inside, *(p for p in parents if p != EACH_OTHER)]):
            told[names.index(child), n if parent == ACTION else names.index(parent)] = True
    np.testing.assert_array_equal(off_diagonal(told), off_diagonal(graph))
    assert len(groups) < n


def test_matrix() -> None:
    graph = np.array([[True, False, True], [True, False, False]])
    assert matrix_lines(("a", "bb"), graph) == ["     01A", " a 0 \\·█", "bb 1 █o·"]


def expand(event: str) -> Iterator[str]:
    """The events that a row of `elden info` stands for."""
    choices = []
    for word in re.findall(r"\{[^}]*\}|[^:]+", event):
        options = []
        for option in word.strip("{}").split(","):
            run_ = re.fullmatch(r"(.*\D)(\d+)-(\d+)", option)
            options += [f"{run_[1]}{k}" for k in range(int(run_[2]), int(run_[3]) + 1)] if run_ else [option]
        choices.append(options)
    return (":".join(words) for words in itertools.product(*choices))


@pytest.mark.parametrize("world", VARIANTS, ids=VARIANT_NAMES)
def test_rules_name_every_event(world: World) -> None:
    rows = rule_lines(world.factors, world.book.rules)
    assert {event for row, _ in rows for event in expand(row)} >= set(world.book.events)
    assert len(rows) <= len(world.book.rules)


def test_rules_that_say_the_same_are_drawn_together() -> None:
    thawing, carwash = make("thawing"), make("carwash", profile="primitives")
    rows = dict(rule_lines(thawing.factors, thawing.book.rules))
    assert rows["goto:{fish,fridge,sink}"] == "agent.x,y,dir <- action, {1}.x,y"
    assert rows["pick:fish"] == "fish.x,y <- action, agent.x,y,dir, fish.x,y"
    assert dict(rule_lines(carwash.factors, carwash.book.rules))["moved:{x,y}"] == "agent.{1} <- action, agent.dir"


# info


@pytest.mark.parametrize("world", VARIANTS, ids=VARIANT_NAMES)
def test_info(capsys: pytest.CaptureFixture[str], world: World) -> None:
    profile = ["--profile", str(getattr(world, "profile"))] if hasattr(world, "profile") else []  # noqa: B009
    code, out, err = run(capsys, "info", world.name, *profile)
    assert (code, err) == (0, "")
    expected = [
        f"horizon {world.max_steps} steps",
        *world.factors.entity_names,
        *(f"{i} {name}" for i, name in enumerate(world.action_names)),
        *(f"{i} {name}" for i, name in enumerate(world.stage_names, 1)),
    ]
    assert [words for words in expected if words not in out] == []
    if hasattr(world, "smallest_size"):
        assert f"smallest size {world.smallest_size}" in out


def test_info_tells_what_is_not_observed(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "info", "carwash")
    assert re.search(r"not observed\W+shelf", out)


# Keys.


@pytest.mark.parametrize("world", VARIANTS, ids=VARIANT_NAMES)
def test_every_action_has_a_key_of_its_own(world: World) -> None:
    keys = assign_keys(world.action_names)
    assert sorted(keys.values()) == list(range(world.num_actions))
    assert all(list(keys_in(key)) == [key] for key in keys), "a key must be typed as itself"
    assert not {key.lower() for key in keys} & set(COMMAND_KEYS)


def test_natural_keys() -> None:
    assert list(assign_keys(("left", "right", "forward"))) == ["←", "→", "↑"]
    assert list(assign_keys(("down", "up", "left", "right", "use"))) == ["↓", "↑", "←", "→", "e"]
    assert list(assign_keys(("goto_a", "goto_b", "goto_c", "open", "close"))) == ["1", "2", "3", "o", "c"]
    assert list(assign_keys(("pick_rag", "pick_soap", "drop_rag", "drop_soap"))) == ["p", "P", "d", "D"]


@pytest.mark.parametrize("count", [20, 50, 60])
def test_many_actions_have_keys(count: int) -> None:
    keys = assign_keys([*(f"goto_link{k}" for k in range(count - 1)), "touch"])
    assert sorted(keys.values()) == list(range(count))
    assert keys["t"] == count - 1


def test_more_actions_than_keys() -> None:
    with pytest.raises(UsageError, match="more actions than there are keys"):
        assign_keys([f"goto_link{k}" for k in range(200)])


def test_typed_characters() -> None:
    assert "".join(keys_in("\x1b[A\x1b[B\x1bOC\x1b[D<>^v")) == "↑↓→←←→↑↓"
    assert "".join(keys_in("Rr qQ\nuG\t pP1")) == "rrqqugpP1"
    assert list(keys_in("\x03")) == ["q"]
    assert list(keys_in("\x1b[5~\x1bx")) == ["x"], "other escape sequences are no keys"


# play


def frames_of(out: str) -> list[str]:
    """The frames that `elden play` printed one under the other."""
    return re.split(r"(?m)^(?=\w+.*   seed \d+, episode \d+)", out)[1:]


def counts(out: str) -> list[str]:
    return re.findall(r"step +(\d+)/", out)


@pytest.mark.parametrize("name", some_slow(NAMES, ["minecraft"]))
def test_play_given_keys(capsys: pytest.CaptureFixture[str], name: str) -> None:
    world = make(name, max_steps=4)
    keys = list(assign_keys(world.action_names))[-2:]
    code, out, err = run(capsys, "play", name, "--max-steps", "4", "--keys", "".join([*keys, "g", *keys, keys[0]]))
    assert (code, err) == (0, "")
    assert counts(out) == ["0", "1", "2", "2", "3", "4", "4"]
    last = frames_of(out)[-1]
    assert "Time is up: the episode is over" in last
    assert "no step can be taken any more" in last
    assert "row <- column" in last
    for words in (*world.action_names, *world.stage_names, "R new episode", "Q quit"):
        assert words in last
    assert out.endswith("not solved\n")


def test_play_shows_what_depended_on_what(capsys: pytest.CaptureFixture[str]) -> None:
    # Goes to the fridge, opens it; the fish in it freezes meanwhile.
    _, out, _ = run(capsys, "play", "thawing", "--max-steps", "4", "--keys", "2o")
    start, _, opened = frames_of(out)
    assert "· fridge open" in start
    assert "✓ fridge open" in opened
    assert "action  open" in opened
    assert re.search(r"events +frozen_rose +door", opened)
    assert "fridge.open <- action, agent.x, agent.y, agent.dir, fridge.x," in opened
    assert "fish.frozen <- fish.x, fish.y, fridge.x, fridge.y" in opened


def test_play_to_success(capsys: pytest.CaptureFixture[str]) -> None:
    keys = "1t2t3t4t"
    code, out, _ = run(capsys, "play", "chain", "--terminate-on-success", "--keys", keys)
    assert code == 0
    assert "reward 1   sum 1   success yes" in out
    assert "Solved: the episode is over" in out
    assert out.endswith("episode 1: 8 steps, 4 of 4 stages, solved\n")


def test_play_piped_keys(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("1\nu\nr1q1111")
    with (tmp_path / "keys").open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        code, out, _ = run(capsys, "play", "chain", "--terminate-on-success")
    assert code == 0
    assert counts(out) == ["0", "1", "0", "0", "1"]
    assert "\x1b" not in out


def test_undo_goes_back_and_chance_repeats_itself() -> None:
    start = game.new_game(make("chain", terminate_on_success=True), seed=3)
    once = game.press(game.press(start, "1"), "t")
    back = game.press(once, "u")
    assert back.history == once.history[:-1]
    assert "took back touch" in back.note
    again = game.press(back, "t")
    assert again.now.step is not None
    assert once.now.step is not None
    np.testing.assert_array_equal(again.now.state.values, once.now.state.values)
    assert replace(again.now.step, graph=once.now.step.graph) == once.now.step
    assert game.press(game.press(back, "u"), "u").note.startswith("nothing to undo")


def test_undo_takes_back_the_end_of_an_episode() -> None:
    over = game.new_game(make("chain", max_steps=1, terminate_on_success=True), seed=0)
    over = game.press(over, "1")
    assert over.now.over
    assert game.press(over, "2").history == over.history
    assert not game.press(over, "u").now.over
    assert game.press(over, "r").episode == 2


def test_games_depend_on_seed_and_episode() -> None:
    world = make("thawing", max_steps=4)
    first = game.new_game(world, seed=0)
    others = [game.press(first, "r"), game.new_game(world, seed=1)]
    np.testing.assert_array_equal(game.new_game(world, seed=0).now.state.values, first.now.state.values)
    assert all(np.any(other.now.state.values != first.now.state.values) for other in others)


# video


def make_film(capsys: pytest.CaptureFixture[str], out: Path, *words: str) -> tuple[str, dict[str, object]]:
    code, said, err = run(capsys, "video", *words, "--out", str(out))
    assert (code, err) == (0, "")
    summary = json.loads((out / "summary.json").read_text())
    assert isinstance(summary, dict)
    return said, summary


@pytest.mark.parametrize("name", some_slow(NAMES, ["minecraft"]))
def test_film(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    words = [name, "--episodes", "2", "--max-steps", "4", "--no-solvable-only", "--seed", "5", "--tile", "16"]
    said, summary = make_film(capsys, tmp_path, *words)
    assert summary["world"] == {
        "name": name,
        **{k: getattr(make(name, max_steps=4), k) for k in WORLDS[name].option_names()},
    }
    assert summary["seed"] == 5
    assert str(summary["command"]).startswith(f"elden video {name} --episodes 2")
    assert summary["elden"] == elden.__version__
    episodes, totals, video = summary["episodes"], summary["totals"], summary["video"]
    assert isinstance(episodes, list)
    assert isinstance(totals, dict)
    assert isinstance(video, dict)
    assert [one["length"] for one in episodes] == [4, 4]
    assert totals["steps"] == 8
    assert totals["success_rate"] == np.mean([one["success"] for one in episodes])
    assert 0 < totals["positive_rate"] < 1
    assert max(totals["event_types"].values()) <= 8
    with Image.open(tmp_path / video["file"]) as gif:
        assert getattr(gif, "n_frames") == video["steps"] + 1  # noqa: B009
    text = (tmp_path / "summary.txt").read_text()
    assert all(line in said for line in text.splitlines())
    assert all(
        str(tmp_path / file) in said.replace("\n", "") for file in ("episode.gif", "summary.txt", "summary.json")
    )


def test_the_first_success_is_filmed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # At this epsilon some of the episodes fail; the seed is one whose first episode does.
    words = ["chain", "--max-steps", "9", "--epsilon", "0.2", "--no-solvable-only", "--seed", "1"]
    _, summary = make_film(capsys, tmp_path, *words)
    episodes, video = summary["episodes"], summary["video"]
    assert isinstance(episodes, list)
    assert isinstance(video, dict)
    successes = [one["success"] for one in episodes]
    assert not successes[0]
    assert video["episode"] == successes.index(True) + 1
    recorded = episodes[video["episode"] - 1]
    assert video["steps"] == min(recorded["first_success_step"] + 3, recorded["length"])
    assert recorded["return"] == recorded["length"] - recorded["first_success_step"] + 1
    assert recorded["stages"] == list(make("chain").stage_names)


def test_a_film_counts_edges_and_events(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    world = make("chain", max_steps=9)
    words = ["chain", "--max-steps", "9", "--episodes", "1", "--epsilon", "0.2", "--no-solvable-only", "--seed", "2"]
    _, summary = make_film(capsys, tmp_path, *words)
    episode = play_episode(world, jax.random.fold_in(jax.random.key(2), 1), 0.2, lambda: None)
    graphs = np.stack([step.graph for step in episode.steps])
    others = np.broadcast_to(np.eye(*graphs.shape[1:]) == 0, graphs.shape)
    totals = summary["totals"]
    assert isinstance(totals, dict)
    assert totals["positive_rate"] == pytest.approx(graphs[others].mean())
    assert totals["event_types"]["noise"] == 9
    assert totals["event_types"]["touch"] == sum(any(e.startswith("touch") for e in s.events) for s in episode.steps)


def test_films_end_soon_after_success() -> None:
    world = make("chain", max_steps=9)
    episode = play_episode(world, jax.random.key(0), 0.0, lambda: None)
    assert episode.first_success == 8
    assert len(episode.until_success().steps) == 9, "no longer than the episode"
    early = Episode(episode.states, tuple(replace(step, success=step.number >= 3) for step in episode.steps))
    assert (len(early.until_success().steps), len(early.until_success().states)) == (6, 7)


# A real terminal.


def read_until(fd: int, words: str, timeout_s: float = 60.0) -> str:
    """What a terminal shows, escape sequences left out, until some words appear."""
    seen, end = b"", time.monotonic() + timeout_s
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.2)[0]:
            seen += os.read(fd, 65536)
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="ignore"))
        if words in shown:
            return shown
    raise AssertionError(f"{words!r} did not appear in {seen!r}")


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (30, 100))
    yield leader, follower
    os.close(leader)
    os.close(follower)


@pytest.mark.parametrize("leave", ["key", "interrupt"])
def test_play_in_a_terminal(terminal: tuple[int, int], leave: str) -> None:
    termios = pytest.importorskip("termios")
    leader, follower = terminal
    before = termios.tcgetattr(follower)
    # Where the tests themselves run in the background, interrupts are ignored, also by what they start.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{listen}; from elden.cli import run; run()", "play", "empty"]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    try:
        assert "step    0/40" in read_until(leader, "Q quit")
        assert not termios.tcgetattr(follower)[3] & (termios.ICANON | termios.ECHO), "keys arrive at once and unseen"
        os.write(leader, b"\x1b[A")
        assert "agent.x <- action, agent.dir" in read_until(leader, "Q quit")
        os.write(leader, b"u")
        assert "took back forward" in read_until(leader, "Q quit")
        if leave == "key":
            os.write(leader, b"q")
        else:
            process.send_signal(signal.SIGINT)
        read_until(leader, "episode 1: 0 steps, 0 of 1 stages, not solved")
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
    assert termios.tcgetattr(follower) == before


def test_the_terminal_is_put_back_after_an_error(terminal: tuple[int, int]) -> None:
    termios = pytest.importorskip("termios")
    _, follower = terminal
    before = termios.tcgetattr(follower)
    with os.fdopen(os.dup(follower)) as stream:
        with contextlib.suppress(RuntimeError), character_mode(stream):
            assert termios.tcgetattr(follower) != before
            raise RuntimeError
        assert termios.tcgetattr(follower) == before


def test_keys_from_a_terminal(terminal: tuple[int, int]) -> None:
    leader, follower = terminal
    with os.fdopen(os.dup(follower)) as stream, character_mode(stream):
        os.write(leader, b"1\x1b[A\x1b[Dp")
        keys = read_keys(stream)
        assert list(itertools.islice(keys, 4)) == ["1", "↑", "←", "p"]
        os.write(leader, b"\x1b")
        rest = threading.Timer(0.01, os.write, (leader, b"[Bq"))
        rest.start()
        assert list(itertools.islice(keys, 2)) == ["↓", "q"]
        rest.join()
