"""Transitions recorded from the original environments, replayed through the Gymnasium face.

Every line of `data/*.jsonl.gz` says "from this state, this action led to that state". What the fields mean, and which
options make our worlds follow the originals, is told in `data/README.md`.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import gymnasium
import numpy as np
import pytest
from cases import some_slow

from elden.worlds import CarWash, Minecraft, Thawing
from elden.worlds.gym import WorldEnv

State = dict[str, dict[str, int]]
Edges = set[tuple[str, str]]

DATA = Path(__file__).parent / "data"
LINES = 300
IDS = {
    "thawing": "elden/Thawing-v0",
    "carwash": "elden/CarWash-v0",
    "minecraft": "elden/Minecraft2D-v0",
    "empty": "elden/Empty-v0",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "thawing_skills": {},
    "thawing_primitives": {},
    "carwash_skills": {"car_clean_lag": 0},
    "carwash_primitives": {},
    "minecraft_skills": {},
    "minecraft_primitives": {"wood": 4, "grass": 1},
    "empty_primitives": {},
}
"""For every file, the options beside profile and labels."""


class Line(TypedDict):
    """One recorded transition."""

    world: str
    profile: str
    state: State
    succeeded: bool
    action: str
    next: State
    success: bool
    event: str
    graph_authors: list[tuple[str, str]] | None
    goto_candidates: NotRequired[list[tuple[int, int, int]]]


def read(path: Path) -> list[Line]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def recorded(name: str) -> list[Line]:
    return read(DATA / f"{name}.jsonl.gz")


def make_env(name: str, **changes: Any) -> WorldEnv:
    """The environment that should do what the file shows, or another one with some options changed."""
    world, profile = name.split("_")
    options = {"profile": profile, "labels": "authors", **OPTIONS[name], **changes}
    env = gymnasium.make(IDS[world], disable_env_checker=True, **options).unwrapped
    assert isinstance(env, WorldEnv)
    return env


def pose(state: State) -> tuple[int, int, int]:
    agent = state["agent"]
    return agent["x"], agent["y"], agent["dir"]


def with_pose(state: State, new: tuple[int, int, int]) -> State:
    return {**state, "agent": dict(zip(("x", "y", "dir"), new, strict=True))}


def lands_anywhere(line: Line) -> bool:
    """Whether the original drew the pose at random: every goTo in the rooms, the workshop's in Minecraft."""
    return "goto_candidates" in line and (line["world"] != "minecraft" or line["action"] == "goto_workshop")


def edges(env: WorldEnv, graph: np.ndarray) -> Edges:
    """The (child, parent) pairs off the diagonal."""
    children, parents = env.variable_names, (*env.variable_names, "action")
    pairs = {(children[dst], parents[src]) for dst, src in np.argwhere(graph)}
    return {(child, parent) for child, parent in pairs if child != parent}


def expected_edges(line: Line, ours: State) -> Edges | None:
    """What the original's labels are where the agent is where it is in `ours`.

    Only Minecraft's goTo tells apart whether the pose changed; where it is also random, our own pose decides.
    """
    if line["graph_authors"] is None:
        return None
    given = {(child, parent) for child, parent in line["graph_authors"]}
    if line["action"] != "goto_workshop":
        return given
    parents = ("workshop.x", "workshop.y", "action")
    moved = {(f"agent.{part}", parent) for part in ("x", "y", "dir") for parent in parents}
    assert given == (moved if pose(line["next"]) != pose(line["state"]) else set())
    return moved if pose(ours) != pose(line["state"]) else set()


def check_candidates(env: WorldEnv, line: Line) -> str | None:
    """Where goTo may land."""
    world = env.world
    assert isinstance(world, Thawing | CarWash | Minecraft)
    target = line["action"].removeprefix("goto_")
    ours = world.goto_poses(world.from_named(env.state()), target)
    theirs = [(x, y, facing) for x, y, facing in line["goto_candidates"]]
    # The order is a rule in Minecraft alone.
    same = ours == theirs if isinstance(world, Minecraft) else sorted(ours) == sorted(theirs)
    return None if same else f"goTo may land on {ours}, recorded are {theirs}"


def expected_state(line: Line, ours: State) -> State:
    """The recorded next state, but for the pose after a random goTo: any candidate will do."""
    allowed = [tuple(candidate) for candidate in line.get("goto_candidates", [])]
    return with_pose(line["next"], pose(ours)) if lands_anywhere(line) and pose(ours) in allowed else line["next"]


def observed(env: WorldEnv, obs: dict[str, Any]) -> State:
    """An observation with its variables named."""
    return {
        entity.name: dict(zip(entity.variable_names, obs[entity.name].tolist(), strict=True))
        for entity in env.factors.entities
    }


def differing(ours: State, theirs: State) -> str | None:
    names = [(entity, variable) for entity in theirs for variable in theirs[entity]]
    if set(names) != {(entity, variable) for entity in ours for variable in ours[entity]}:
        return f"variables are {ours}, recorded are {theirs}"
    parts = [f"{e}.{v} {ours[e][v]} for {theirs[e][v]}" for e, v in names if ours[e][v] != theirs[e][v]]
    return ", ".join(parts) or None


def replay(env: WorldEnv, line: Line) -> dict[str, str]:
    """What comes out differently from the recorded line: what -> how; empty where all is the same."""
    obs, info = env.reset(options={"state": line["state"], "succeeded": line["succeeded"]})
    start: Any = env.state()
    found: dict[str, str | None] = {"start": differing(start, line["state"])}
    if info["success"] is not line["succeeded"] or not observed(env, obs).items() <= line["state"].items():
        found["start"] = f"after reset: success {info['success']}, observation {obs}"
    if "goto_candidates" in line:
        found["candidates"] = check_candidates(env, line)

    obs, reward, terminated, truncated, info = env.step(env.action_names.index(line["action"]))
    ours: Any = env.state()
    found["state"] = differing(ours, expected_state(line, ours))
    if not observed(env, obs).items() <= ours.items():
        found["observation"] = f"{obs} in state {ours}"
    if info["success"] is not line["success"]:
        found["success"] = f"{info['success']}"
    if (reward, terminated, truncated) != (float(line["success"]), False, False):
        found["reward"] = f"{reward}, terminated {terminated}, truncated {truncated}"
    theirs = expected_edges(line, ours)
    if theirs is not None and edges(env, info["local_graph"]) != theirs:
        found["graph"] = (
            f"too few {theirs - edges(env, info['local_graph'])}, too many {edges(env, info['local_graph']) - theirs}"
        )
    return {what: how for what, how in found.items() if how is not None}


def replay_all(env: WorldEnv, lines: list[Line]) -> dict[int, dict[str, str]]:
    """The lines, by number, that come out differently."""
    env.reset(seed=0)
    results = {number: replay(env, line) for number, line in enumerate(lines)}
    return {number: found for number, found in results.items() if found}


@pytest.mark.parametrize("name", some_slow(OPTIONS, ["minecraft_primitives", "minecraft_skills"]))
def test_every_recorded_transition_happens_again(name: str) -> None:
    lines = recorded(name)
    wrong = replay_all(make_env(name), lines)
    assert len(lines) == LINES
    report = [f"line {n}, {lines[n]['action']} ({lines[n]['event']}): {found}" for n, found in wrong.items()]
    assert not report, f"{len(report)} of {LINES} lines differ:\n" + "\n".join(report[:10])


def test_every_file_is_replayed() -> None:
    assert {path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz")} == set(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_recorded_lines_show_every_event_and_action(name: str) -> None:
    lines, env = recorded(name), make_env(name)
    labels = Counter(label for line in lines for label in line["event"].split("+"))
    # Only two pairs of state and action lead into the goal of the empty room.
    rare = {"success_now"} if name == "empty_primitives" else set()
    assert {label for label, count in labels.items() if count < 5} == rare
    assert {line["action"] for line in lines} == set(env.action_names)
    assert labels["success_now"]
    assert labels["already_succeeded"]
    has_graphs = name not in ("carwash_primitives", "empty_primitives")
    assert all((line["graph_authors"] is not None) is has_graphs for line in lines)
    assert any("goto_candidates" in line for line in lines) is name.endswith("_skills")


def test_a_broken_rule_is_caught() -> None:
    """With the car clean one step late, exactly the lines in which it becomes clean differ."""
    lines = [line for n, line in enumerate(recorded("carwash_skills")) if n % 4 == 0 or "car_cleaned" in line["event"]]
    wrong = replay_all(make_env("carwash_skills", car_clean_lag=1), lines)
    cleaning = {number for number, line in enumerate(lines) if "car_cleaned" in line["event"].split("+")}
    assert len(cleaning) >= 5
    assert set(wrong) == cleaning
    assert all(found.keys() == {"state"} and "car.stained" in found["state"] for found in wrong.values())


def test_other_labels_are_caught() -> None:
    """With our own labels the graphs differ, and nothing else does."""
    lines = recorded("thawing_skills")[::3]
    wrong = replay_all(make_env("thawing_skills", labels="fix"), lines)
    assert len(wrong) >= 10
    assert all(found.keys() == {"graph"} for found in wrong.values())
