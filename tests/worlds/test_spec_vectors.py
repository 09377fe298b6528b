"""The facts and test vectors of the specification of the grid worlds, played through the worlds.

Numbers in docstrings are sections of the specification. No expected value is read off the implementation.
"""

import itertools
from collections import Counter, deque
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_helpers import Named, Play, changed, compiled, compiled_many, found_edges, world_of, written_edges

from elden.worlds import Transition, WorldState

Pose = tuple[int, int, int]
Cell = tuple[int, int]


def goto(play: Play, target: str, recorded: str | None) -> Transition:
    """goTo; the pose taken must be a candidate, and so must the recorded one, which is then set by hand."""
    candidates = play.world.goto_poses(play.state, target)
    before = play.pose
    transition = play.act(f"goto_{target}")
    assert play.pose in (candidates or [before])
    if recorded is not None:
        assert tuple(map(int, recorded.split(","))) in (candidates or [before])
        play.place(f"agent={recorded}")
    return transition


def entity_edges(world: Any, transition: Transition) -> set[str]:
    """The off-diagonal edges at entity level, as "parent->child"."""
    children = world.factors.entity_names
    parents = (*children, "A")
    graph = np.asarray(world.factors.reduce_graph(transition.graph))
    return {f"{parents[src]}->{children[dst]}" for dst, src in np.argwhere(graph) if src != dst}


# Section 8: the vectors.

V1 = [
    ("drop_fish", "7,2,0", "3,3,4", 0, 0),
    ("pick_fish", "7,2,0", "3,3,5", 0, 0),
    ("goto_fish", "3,2,1", "3,3,5", 0, 0),
    ("pick_fish", "3,2,1", "3,3,5", 0, 0),
    ("open", "3,2,1", "3,3,5", 1, 0),
    ("open", "3,2,1", "3,3,5", 1, 0),
    ("pick_fish", "3,2,1", "0,0,5", 1, 0),
    ("drop_fish", "3,2,1", "0,0,5", 1, 0),
    ("goto_fish", "3,2,1", "0,0,5", 1, 0),
    ("goto_sink", "6,8,3", "0,0,5", 1, 0),
    ("drop_fish", "6,8,3", "6,7,5", 1, 0),
    *[("goto_fridge", None, f"6,7,{level}", 1, 0) for level in (4, 3, 2, 1)],
    ("goto_fridge", "4,2,1", "6,7,0", 1, 1),
    ("goto_fridge", None, "6,7,0", 1, 1),
    ("goto_fridge", "3,2,1", "6,7,0", 1, 1),
    ("close", "3,2,1", "6,7,0", 0, 1),
    ("close", "3,2,1", "6,7,0", 0, 1),
]


def test_v1_thawing_skills() -> None:
    play = Play("TS", "agent=7,2,0 fish=3,3,3")
    for t, (action, pose, fish, door, paid) in enumerate(V1, start=1):
        moves = action.startswith("goto")
        transition = goto(play, action.removeprefix("goto_"), pose) if moves else play.act(action)
        expected = f"fish={fish} fridge=3,3,{door} sink=6,6"
        play.expect(f"{expected} agent={pose}" if pose else expected)
        assert (float(transition.reward), bool(transition.success)) == (paid, bool(paid))
        assert (bool(transition.terminated), bool(transition.truncated)) == (False, t == 20)
    assert t == 20


PICKED = "fish.xy <- action agent* fish.xy"
V2 = [
    # state set by hand, action, agent, fish, open, on, edges
    ("agent=3,6,0", "forward", "4,6,0", "3,3,5", 0, 0, "agent.x <- agent.dir action"),
    ("agent=2,3,0", "forward", "2,3,0", "3,3,5", 0, 0, "agent.x <- agent.y agent.dir fridge.xy"),
    ("", "pick", "2,3,0", "3,3,5", 0, 0, ""),
    ("", "open", "2,3,0", "3,3,5", 1, 0, "fridge.open <- action agent* fridge.xy"),
    ("", "pick", "2,3,0", "2,3,5", 1, 0, PICKED),
    ("", "drop_fish", "2,3,0", "3,3,5", 1, 0, f"{PICKED}; fish.frozen <- action agent*"),
    ("agent=2,3,0", "pick", "2,3,0", "2,3,5", 1, 0, PICKED),
    ("", "close", "2,3,0", "2,3,5", 0, 0, "fridge.open <- action agent* fridge.xy"),
    ("", "drop_fish", "2,3,0", "2,3,5", 0, 0, ""),
    (
        "agent=2,2,1 fish@hand",
        "forward",
        "2,3,1",
        "2,3,5",
        0,
        0,
        "agent.y <- agent.dir action; fish.y <- action agent*",
    ),
    ("agent=5,6,0 fish@hand", "drop_fish", "5,6,0", "6,6,5", 0, 0, f"{PICKED}; fish.frozen <- action agent*"),
    ("agent=5,6,0", "left", "5,6,3", "6,6,5", 0, 0, "agent.dir <- action"),
    ("agent=5,6,0", "toggle", "5,6,0", "6,6,5", 0, 1, "sink.on <- action agent* sink.xy"),
    ("", "left", "5,6,3", "6,6,4", 0, 1, "agent.dir <- action; fish.frozen <- fish.xy sink.xy sink.on"),
    ("", "left", "5,6,2", "6,6,3", 0, 1, "agent.dir <- action; fish.frozen <- fish.xy sink.xy sink.on"),
]


def test_v2_thawing_primitives_and_the_authors_labels() -> None:
    play = Play("TP authors")
    for by_hand, action, agent, fish, door, switch, edges in V2:
        transition = play.place(by_hand).act(action)
        play.expect(f"agent={agent} fish={fish} fridge=3,3,{door} sink=6,6,{switch}")
        assert found_edges(play.world, transition) == written_edges(play.world, edges), (by_hand, action)
        assert float(transition.reward) == 0


V3 = [
    # action, agent, rag, soap, on, stained
    ("goto_rag", "5,5,0", "6,5,0,5", "6,6", 0, 1),
    ("pick_rag", "5,5,0", "0,0,0,5", "6,6", 0, 1),
    ("goto_sink", "2,5,1", "0,0,0,5", "6,6", 0, 1),
    ("toggle", "2,5,1", "0,0,0,5", "6,6", 1, 1),
    ("drop_rag", "2,5,1", "2,6,0,5", "6,6", 1, 1),
    ("pick_rag", "2,5,1", "0,0,1,5", "6,6", 1, 1),
    ("goto_car", "3,3,3", "0,0,1,5", "6,6", 1, 1),
    ("drop_rag", "3,3,3", "3,2,1,0", "6,6", 1, 0),
    ("pick_rag", "3,3,3", "0,0,1,0", "6,6", 1, 0),
    ("goto_bucket", "8,2,2", "0,0,1,0", "6,6", 1, 0),
    ("drop_rag", "8,2,2", "7,2,1,0", "6,6", 1, 0),
    ("goto_soap", "5,6,0", "7,2,1,0", "6,6", 1, 0),
    ("pick_soap", "5,6,0", "7,2,1,0", "0,0", 1, 0),
    ("goto_bucket", "7,4,3", "7,2,1,0", "0,0", 1, 0),
    ("drop_soap", "7,4,3", "7,2,1,0", "7,3", 1, 0),
    *[("toggle", "7,4,3", f"7,2,1,{clean}", "7,3", 1, 0) for clean in (1, 2, 3, 4, 5)],
]


@pytest.mark.parametrize(("code", "lag"), [("CS lag 0", 0), ("CS", 1)])
def test_v3_carwash_skills(code: str, lag: int) -> None:
    """With lag 1 only t = 8 differs: the car is cleaned by the passive update of t = 9, before the pick."""
    play = Play(code)
    for t, (action, agent, rag, soap, switch, stained) in enumerate(V3, start=1):
        moves = action.startswith("goto")
        transition = goto(play, action.removeprefix("goto_"), agent) if moves else play.act(action)
        if lag == 1 and t == 8:
            rag, stained = "3,2,1,5", 1
        play.expect(f"agent={agent} rag={rag} soap={soap} sink=2,6,{switch} car=1,1,{stained} bucket=7,2")
        assert (float(transition.reward), bool(transition.success)) == (t == 20, t == 20)
    assert t == 20


V4 = [
    # start, then (state set by hand, action, what is then so); "toggle" or "pick_soap" where nothing can happen
    (
        "agent=1,3,3 rag@hand soap@hand rag.soak=1",
        [
            ("", "drop_soap", "soap=1,2 car.stained=1"),
            ("", "drop_rag", "rag=0,0,1,5 car.stained=1"),
            ("", "pick_soap", "soap=0,0 car.stained=1"),
            ("", "drop_rag", "rag=1,2,1,0 car.stained=0"),
        ],
    ),
    (
        "agent=5,6,0 rag@hand",
        [("", "drop_rag", "rag=0,0,0,5 soap=6,6"), ("agent=5,5,0", "drop_rag", "rag=6,5,0,5 soap=6,6")],
    ),
    (
        "agent=1,3,3 rag@hand",
        [("", "drop_rag", "rag=1,2,0,5 car.stained=1"), ("", "toggle", "rag=1,2,0,5 car.stained=1")],
    ),
    (
        "agent=6,2,0 rag=7,3,0,0 soap=7,2",
        [
            ("", "toggle", "rag.clean=1 soap=7,2"),
            ("", "pick_soap", "rag.clean=2 soap=0,0"),
            ("", "toggle", "rag.clean=2"),
            ("", "toggle", "rag.clean=2"),
        ],
    ),
    (
        "agent=1,6,0 rag=2,6,0,5",
        [
            ("", "toggle", "rag.soak=0 sink.on=1"),
            ("", "toggle", "rag.soak=1 sink.on=0"),
            ("", "pick_soap", "rag.soak=1 sink.on=0"),
            ("", "toggle", "rag.soak=1 sink.on=1"),
            ("", "pick_rag", "rag=0,0,2,5"),
            ("", "pick_soap", "rag=0,0,2,5"),
        ],
    ),
    (
        "agent=8,8,0 rag@hand",
        [("", "drop_rag", "rag=0,0,0,5"), ("agent=8,4,3", "drop_rag", "rag=8,3,0,5")],
    ),
]


@pytest.mark.parametrize(("start", "steps"), V4)
def test_v4_carwash_skills_short_cases(start: str, steps: list[tuple[str, str, str]]) -> None:
    play = Play("CS lag 0", start)
    for by_hand, action, expected in steps:
        play.place(by_hand).act(action)
        play.expect(expected)


def test_v4_with_lag_1_the_car_waits_one_step() -> None:
    play = Play("CS", "agent=1,3,3 rag@hand rag.soak=1")
    play.act("drop_rag")
    play.expect("rag=1,2,1,5 car.stained=1")
    play.act("toggle")
    play.expect("rag=1,2,1,0 car.stained=0")


RAG_MOVED, SOAP_MOVED = {"agent->rag", "A->rag"}, {"agent->soap", "A->soap"}
V5: list[tuple[str, str, str, int, set[str]]] = [
    # state set by hand, action, state, reward, entity edges
    (
        "agent=5,5,0",
        "forward",
        "agent=5,5,0 car.stained=1 bucket.soapy=0 soap=6,6 sink.on=0 rag=6,5,0,5",
        0,
        {"rag->agent"},
    ),
    ("", "pick", "soap=6,6 rag=5,5,0,5", 0, RAG_MOVED),
    ("agent=4,6,2 rag@hand", "drop_rag", "rag=3,6,0,5 sink.on=0", 0, RAG_MOVED),
    ("", "toggle", "rag=3,6,0,5 sink.on=1", 0, {"agent->sink", "A->sink"}),
    *[("", "left", f"rag=3,6,{soak},5", 0, {"A->agent", "sink->rag"}) for soak in (1, 2, 3, 4, 5)],
    ("", "left", "rag=3,6,5,5", 0, {"A->agent"}),
    ("agent=4,6,2", "pick", "rag=4,6,5,5", 0, RAG_MOVED),
    ("agent=4,2,2 rag@hand", "drop_rag", "rag=3,2,5,5 car.stained=1 bucket.soapy=0", 0, RAG_MOVED),
    ("", "right", "rag=3,2,5,0 car.stained=0 bucket.soapy=0 soap=6,6", 0, {"A->agent", "rag->car", "car->rag"}),
    ("agent=4,2,2", "pick", "rag=4,2,5,0 soap=6,6", 0, RAG_MOVED),
    ("agent=5,6,0 rag@hand", "pick", "rag=5,6,5,0 soap=5,6 car.stained=0", 0, SOAP_MOVED),
    ("agent=6,2,0 rag@hand soap@hand", "drop_soap", "rag=6,2,5,0 soap=7,2 bucket.soapy=0", 0, SOAP_MOVED),
    ("agent=6,3,0 rag@hand", "drop_rag", "rag=7,3,5,0 soap=7,2 bucket.soapy=1", 0, {"soap->bucket"} | RAG_MOVED),
    *[
        (
            "",
            "left",
            f"rag=7,3,5,{clean} bucket.soapy=1 car.stained=0 sink.on=1",
            clean == 5,
            {"A->agent", "bucket->rag"},
        )
        for clean in (1, 2, 3, 4, 5)
    ],
]


def test_v5_carwash_primitives_and_the_authors_labels() -> None:
    play = Play("CP authors")
    for by_hand, action, expected, reward, edges in V5:
        transition = play.place(by_hand).act(action)
        play.expect(expected)
        assert entity_edges(play.world, transition) == edges, (by_hand, action, expected)
        assert (float(transition.reward), bool(transition.success)) == (reward, bool(reward))


def counts(**given: int) -> str:
    """The inventory with these counters, the others 0."""
    names = ("gem", "grass", "wood", "stone", "stick", "wood_pickaxe", "stone_pickaxe", "rope", "bridge")
    assert given.keys() <= set(names)
    return "inventory=" + ",".join(str(given.get(name, 0)) for name in names)


V6 = [
    # state set by hand, action, pose, inventory
    ("", "up", "6,8,1", counts()),
    ("", "left", "5,8,2", counts()),
    ("", "down", "5,7,0", counts()),
    ("agent=3,4,0", "use", "3,4,0", f"{counts(grass=1)} grass0=0,0"),
    ("agent=3,4,1", "use", "3,4,1", f"{counts(grass=1, wood=1)} wood0=0,0"),
    ("agent=2,3,1", "use", "2,3,1", f"{counts(grass=1, wood=2)} wood1=0,0"),
    ("agent=7,5,1", "use", "7,5,1", f"{counts(grass=1, wood=3)} wood2=0,0"),
    ("agent=3,6,1", "use", "3,6,1", f"{counts(grass=1, wood=4)} wood3=0,0"),
    ("agent=7,4,0", "use", "7,4,0", f"{counts(grass=1, wood=4)} stone0=7,3"),
    ("agent=4,5,3", "craft_rope", "4,5,3", counts(wood=4, rope=1)),
    ("", "craft_bridge", "4,5,3", counts(wood=3, bridge=1)),
    ("", "craft_bridge", "4,5,3", counts(wood=3, bridge=1)),
    ("", "craft_stick", "4,5,3", counts(wood=2, stick=1, bridge=1)),
    ("", "craft_wood_pickaxe", "4,5,3", counts(wood=1, wood_pickaxe=1, bridge=1)),
    ("", "craft_stick", "4,5,3", counts(stick=1, wood_pickaxe=1, bridge=1)),
    ("agent=7,4,0", "use", "7,4,0", f"{counts(stick=1, stone=1, wood_pickaxe=1, bridge=1)} stone0=0,0"),
    ("agent=4,5,3", "craft_stone_pickaxe", "4,5,3", counts(wood_pickaxe=1, stone_pickaxe=1, bridge=1)),
    ("agent=5,4,0", "up", "5,4,1", counts(wood_pickaxe=1, stone_pickaxe=1, bridge=1)),
    ("agent=5,4,1", "down", "5,4,0", f"{counts(wood_pickaxe=1, stone_pickaxe=1, bridge=1)} water3=5,3"),
    ("", "use", "5,4,0", f"{counts(wood_pickaxe=1, stone_pickaxe=1)} water3=0,0 water0=4,2"),
    ("", "down", "5,3,0", counts(wood_pickaxe=1, stone_pickaxe=1)),
    ("", "down", "5,3,0", f"{counts(wood_pickaxe=1, stone_pickaxe=1)} gem=5,2"),
    ("", "use", "5,3,0", f"{counts(wood_pickaxe=1, stone_pickaxe=1, gem=1)} gem=0,0"),
    ("", "up", "5,4,1", counts(wood_pickaxe=1, stone_pickaxe=1, gem=1)),
]
V6_STAGES = {0: 10, 1: 11, 2: 20, 3: 13, 4: 14, 5: 17, 6: 23}
"""4.4: stage -> the step (from 1) of V6 that first reaches it; rope, stick and bridge are spent later."""


def test_v6_minecraft_primitives() -> None:
    """4.4 too: stages stay once reached."""
    play = Play("MP")
    for t, (by_hand, action, pose, expected) in enumerate(V6, start=1):
        transition = play.place(by_hand).act(action)
        play.expect(f"agent={pose} {expected}")
        assert (float(transition.reward), bool(transition.success)) == (t >= 23, t >= 23)
        assert transition.stages.tolist() == [t >= V6_STAGES[stage] for stage in range(7)], t


@pytest.mark.parametrize(
    ("state", "target", "pose"),
    [
        ("", "wood0", "2,5,right"),
        ("", "water2", "6,1,up"),
        ("", "gem", "6,8,down"),
        ("water3=0,0", "gem", "5,3,down"),
        ("wood0=0,0", "wood0", "6,8,down"),
        ("agent=2,5,left", "wood0", "2,5,right"),
    ],
)
def test_v7_teleport_first(state: str, target: str, pose: str) -> None:
    """On the layout of V6 with the default counts, the second grass and the fifth wood being gone; also 4.3."""
    for seed in range(3):
        play = Play("MS", state)
        play.act(f"goto_{target}", seed)
        play.expect(f"agent={pose}")


LAYOUT_A = "shelf=7,3 car=1,1,1 bucket=1,5 sink=3,6,0 rag=8,4,0,5 soap=7,3 agent=5,5,0"
LAYOUT_B = "shelf=6,1 car=4,5,1 bucket=8,2 sink=1,1,0 rag=7,1,0,5 soap=6,2 agent=3,4,0"
V8 = [
    ("CS path", "agent=4,4,0", "rag 5,5,0; soap 5,6,0; bucket 6,3,0; sink 3,5,1; car 4,2,2"),
    ("CS path", "agent=8,8,2", "rag 5,5,0; soap 5,6,0; bucket 8,3,2; sink 4,7,2; car 4,2,2"),
    ("CS path", "agent=1,8,3", "rag 5,5,0; soap 5,6,0; bucket 6,3,0; sink 1,7,0; car 1,3,3"),
    ("TS path", "agent=3,6,0", "fish 2,3,0; fridge 3,5,3; sink 5,6,0"),
    ("TS path", "agent=8,1,1", "fish 3,2,1; fridge 4,2,1; sink 7,5,1"),
    ("CS path", LAYOUT_A, "rag 5,5,0; soap 6,3,0; bucket 2,5,2; sink 4,5,1; car 4,2,2"),
    ("CS", LAYOUT_A, "rag 5,5,0"),
    ("CS path", LAYOUT_B, "rag 3,4,0; soap 5,2,0; bucket 8,4,3"),
    ("CS", LAYOUT_B, "rag 8,1,2"),
]


@pytest.mark.parametrize(("code", "state", "poses"), V8)
def test_v8_path(code: str, state: str, poses: str) -> None:
    for target, pose in map(str.split, poses.split("; ")):
        play = Play(code, state)
        play.act(f"goto_{target}")
        play.expect(f"agent={pose}")


@pytest.mark.parametrize(("code", "expected"), [("CS", [True, False, True]), ("CS path", [True, False, False])])
def test_solvable_is_judged_under_the_goto_rule(code: str, expected: list[bool]) -> None:
    solvable = jax.jit(world_of(code).solvable)
    assert [bool(solvable(Play(code, layout).state)) for layout in ("", LAYOUT_A, LAYOUT_B)] == expected


SOLVE_EMPTY = ["forward"] * 7 + ["right"] + ["forward"] * 7


def test_v9_empty() -> None:
    play = Play("E")
    assert play.world.to_named(play.world.reset(jax.random.key(3))) == {"agent": {"x": 1, "y": 1, "dir": 0}}
    rewards = [float(play.act(action).reward) for action in SOLVE_EMPTY]
    assert rewards == [0.0] * 14 + [1.0]
    play.expect("agent=8,8,1")
    for action, pose in [
        ("forward", "8,8,1"),
        ("left", "8,8,0"),
        ("right", "8,8,1"),
        ("right", "8,8,2"),
        ("forward", "7,8,2"),
        ("forward", "6,8,2"),
    ]:
        assert float(play.act(action).reward) == 1
        play.expect(f"agent={pose}")
    play = Play("E")
    play.act("left")
    assert float(play.act("forward").reward) == 0
    play.expect("agent=1,1,3")


# Rewards, ends and stages.


@pytest.mark.parametrize(
    ("code", "rewards", "terminated_at", "truncated_at"),
    [
        ("E", [0] * 14 + [1] * 26, [], [40]),
        ("E once", [0] * 14 + [1] + [0] * 25, [], [40]),
        ("E stop", [0] * 14 + [1], [15], []),
        ("E 15", [0] * 14 + [1], [], [15]),
    ],
)
def test_reward_and_end_options(
    code: str, rewards: list[int], terminated_at: list[int], truncated_at: list[int]
) -> None:
    """5, 9.5: paid on every step from success on unless `pay_once`; arriving on the last step counts."""
    play = Play(code)
    actions = itertools.islice(itertools.chain(SOLVE_EMPTY, itertools.repeat("left")), len(rewards))
    steps = [play.act(action) for action in actions]
    assert [int(step.reward) for step in steps] == rewards
    assert [t for t, step in enumerate(steps, 1) if step.terminated] == terminated_at
    assert [t for t, step in enumerate(steps, 1) if step.truncated] == truncated_at
    assert [t for t, step in enumerate(steps, 1) if step.success] == list(range(15, len(rewards) + 1))
    assert [step.stages.tolist() for step in steps] == [[bool(step.success)] for step in steps]
    assert float(play.world.elapsed_fraction(play.state)) == len(rewards) / play.world.max_steps


def test_shortest_thawing_solution_and_its_return() -> None:
    """2.5: success at step 10, return 11 over 20 steps; T1 open, T2 carried, T3 thawed."""
    play = Play("TS", "fish.frozen=3")
    actions = ["goto_fish", "open", "pick_fish", "goto_sink", "drop_fish"] + ["open"] * 15
    steps = [play.act(action) for action in actions]
    assert [int(step.reward) for step in steps] == [0] * 9 + [1] * 11
    assert [step.stages.tolist() for step in steps] == [[t >= 2, t >= 3, t >= 10] for t in range(1, 21)]


def successors(play: Play, rows: list[tuple[int, ...]], batch: int = 512) -> tuple[set[tuple[int, ...]], bool]:
    """Every state one action away from these, and whether one of them is a success."""
    world, found, solved = play.world, set(), False
    actions = jnp.tile(jnp.arange(world.num_actions, dtype=jnp.int32), batch)
    keys = jax.random.split(jax.random.key(0), len(actions))
    none = jnp.zeros((len(actions), world.num_stages), bool)
    for start in range(0, len(rows), batch):
        chunk = np.resize(rows[start : start + batch], (batch, len(rows[0])))  # the last one filled up by repetition
        values = jnp.asarray(np.repeat(chunk, world.num_actions, axis=0), play.state.values.dtype)
        states = WorldState(values, jnp.zeros_like(actions), none[:, 0], none)
        after, transition = compiled_many(play.code)(keys, states, actions)
        found |= set(map(tuple, np.asarray(after.values).tolist()))
        solved = solved or bool(transition.success.any())
    return found, solved


def test_no_thawing_solution_is_shorter_than_10_steps() -> None:
    """2.5, by exhaustive search under `path`, where goTo faces the target in one step as well."""
    play = Play("TS path", "agent=7,2,0 fish=3,3,3")
    frontier = seen = {tuple(play.state.values.tolist())}
    for depth in range(1, 11):
        found, solved = successors(play, sorted(frontier))
        assert solved == (depth == 10)
        frontier = found - seen
        seen = seen | found


@pytest.mark.parametrize(("code", "car_clean_at"), [("CS lag 0", 10), ("CS", 11)])
def test_19_step_carwash_solution(code: str, car_clean_at: int) -> None:
    """3.5: both items held at once; lag 1 costs nothing; soak 1 is enough; all six stages at success."""
    play = Play(code)
    plan = "goto_rag pick_rag goto_soap pick_soap goto_sink toggle drop_rag pick_rag goto_car drop_rag pick_rag"
    actions = [*plan.split(), "goto_bucket", "drop_soap", "drop_rag", *["toggle"] * 7]
    first = [2, 7, 8, car_clean_at, 4, 19]
    for t, action in enumerate(actions, start=1):
        transition = play.act(action)
        assert (float(transition.reward), bool(transition.success)) == (t >= 19, t >= 19), t
        assert transition.stages.tolist() == [t >= reached for reached in first], t
    play.expect("rag.soak=1 rag.clean=5 car.stained=0")


def test_24_step_minecraft_solution() -> None:
    """4.4: "a skill solution takes 24 steps"; it reaches every stage on the way."""
    play = Play("MS")
    fetch = [f"goto_{thing} use" for thing in ("grass0", "wood0", "wood1", "wood2", "wood3")]
    plan = " ".join(
        [
            *fetch,
            "goto_workshop craft_rope craft_bridge craft_stick craft_wood_pickaxe craft_stick",
            "goto_stone0 use goto_workshop craft_stone_pickaxe goto_water3 use goto_gem use use",
        ]
    )
    first = [12, 13, 22, 14, 15, 20, 24]
    for t, action in enumerate(plan.split(), start=1):
        transition = play.act(action, seed=t)
        assert float(transition.reward) == (t >= 24), t
        assert transition.stages.tolist() == [t >= reached for reached in first], t
    assert t == 25


def test_absent_water_is_not_a_bridged_one() -> None:
    """4.1, 4.4: with the gem in the lowest row water1 is absent, which is no stage; bridging another one is."""
    play = Play("MP", "gem=5,1 water0=4,1 water1=0,0 water2=6,1 water3=5,2 agent=5,3,0 inventory.bridge=1")
    assert play.state.stages.tolist() == [False, True, False, False, False, False, False]
    assert not bool(play.act("right").stages[2])
    assert bool(play.place("agent=5,3,0").act("use").stages[2])


def test_success_is_latched() -> None:
    """2.5: refrozen after it had thawed, it still counts and pays."""
    play = Play("TP", "fish=6,6,1 sink.on=1")
    assert float(play.act("open").reward) == 1
    transition = play.place("fish=3,3,0").act("open")
    play.expect("fish=3,3,1")
    assert (float(transition.reward), bool(transition.success), bool(transition.stages[2])) == (1, True, True)


# What the worlds say of themselves.

POSITIONS = "gem water0 water1 water2 water3 grass0 grass1 wood0 wood1 wood2 wood3 wood4 stone0 workshop"
COUNTERS = " ".join(
    f"inventory.{name}"
    for name in ("gem", "grass", "wood", "stone", "stick", "wood_pickaxe", "stone_pickaxe", "rope", "bridge")
)
SPOTS = " ".join(f"{thing}.x {thing}.y" for thing in POSITIONS.split())
FEW_SPOTS = " ".join(f"{thing}.x {thing}.y" for thing in POSITIONS.split() if thing not in ("grass1", "wood4"))
CRAFTS = "craft_stick craft_wood_pickaxe craft_stone_pickaxe craft_rope craft_bridge"
DESCRIPTIONS = {
    # horizon, actions, variables, number of values of those that are not positions
    "TS": (20, "goto_fish goto_fridge goto_sink open close pick_fish drop_fish",
           "agent.x agent.y agent.dir fish.x fish.y fish.frozen sink.x sink.y fridge.x fridge.y fridge.open",
           {"fish.frozen": 6, "fridge.open": 2}),
    "TP": (20, "left right forward open close toggle pick drop_fish",
           "agent.x agent.y agent.dir fridge.x fridge.y fridge.open sink.x sink.y sink.on fish.x fish.y fish.frozen",
           {"fish.frozen": 6, "fridge.open": 2, "sink.on": 2}),
    "CS": (100, "goto_rag goto_soap goto_bucket pick_soap drop_soap pick_rag drop_rag toggle goto_car goto_sink",
           "agent.x agent.y agent.dir rag.x rag.y rag.soak rag.clean soap.x soap.y sink.x sink.y sink.on "
           "car.x car.y car.stained bucket.x bucket.y",
           {"rag.soak": 6, "rag.clean": 6, "sink.on": 2, "car.stained": 2}),
    "CP": (100, "left right forward pick toggle drop_soap drop_rag",
           "agent.x agent.y agent.dir car.x car.y car.stained bucket.x bucket.y bucket.soapy soap.x soap.y "
           "sink.x sink.y sink.on rag.x rag.y rag.soak rag.clean",
           {"rag.soak": 6, "rag.clean": 6, "sink.on": 2, "car.stained": 2, "bucket.soapy": 2}),
    "MS": (100, f"use {' '.join(f'goto_{thing}' for thing in POSITIONS.split())} {CRAFTS}",
           f"agent.x agent.y agent.dir {COUNTERS} {SPOTS}", dict.fromkeys(COUNTERS.split(), 6)),
    "MP": (100, f"down up left right use {CRAFTS}",
           f"agent.x agent.y agent.dir {FEW_SPOTS} {COUNTERS}", dict.fromkeys(COUNTERS.split(), 5)),
    "E": (40, "left right forward", "agent.x agent.y agent.dir", {}),
}  # fmt: skip


@pytest.mark.parametrize("code", DESCRIPTIONS)
def test_horizon_actions_and_variables(code: str) -> None:
    """2.2, 2.3, 3.2, 3.3, 4.2, 4.3, 5, and the decisions on horizons and on the inventory."""
    horizon, actions, variables, ranges = DESCRIPTIONS[code]
    world = world_of(code)
    assert world.max_steps == horizon
    assert world.action_names == tuple(actions.split())
    assert world.factors.variable_names == tuple(variables.split())
    expected = [ranges.get(name, 4 if name == "agent.dir" else 10) for name in variables.split()]
    assert [variable.kind.n for variable in world.factors.variables] == expected


def test_defaults() -> None:
    """The decisions of the project."""
    for code in ("TS", "CS", "MS"):
        world = world_of(code)
        assert (world.profile, world.goto, world.size, world.pay_once) == ("skills", "teleport", 10, False)
        assert not world.terminate_on_success
    assert world_of("CS").car_clean_lag == 1
    assert (world_of("MS").wood, world_of("MS").grass) == (5, 2)


# 1: cells, drops, goTo.

FURNITURE = {"fridge": (2, 2), "sink": (2, 2), "car": (3, 2), "shelf": (2, 3), "bucket": (1, 2)}
INSIDE = {*range(1, 9)}
STEPS = {0: (1, 0), 1: (0, 1), 2: (-1, 0), 3: (0, -1)}


def cells_of(named: Named, entity: str) -> list[Cell]:
    """The cells of furniture, an item or a thing of Minecraft; none for what is carried (skills) or removed."""
    x, y = named[entity]["x"], named[entity]["y"]
    w, h = FURNITURE.get(entity, (1, 1))
    return [] if (x, y) == (0, 0) else [(x + i, y + j) for i in range(w) for j in range(h)]


def free_cells(named: Named) -> set[Cell]:
    taken = {cell for entity in named if entity not in ("agent", "inventory") for cell in cells_of(named, entity)}
    return {(x, y) for x in INSIDE for y in INSIDE} - taken


def candidates(named: Named, target: str) -> set[Pose]:
    """1.5: every free cell that shares an edge with the target, facing it."""
    beside = {(x - dx, y - dy, d) for x, y in cells_of(named, target) for d, (dx, dy) in STEPS.items()}
    return {(x, y, d) for x, y, d in beside if (x, y) in free_cells(named)}


def distances(named: Named) -> dict[Cell, int]:
    start = named["agent"]["x"], named["agent"]["y"]
    free, reached, queue = free_cells(named), {start: 0}, deque([start])
    while queue:
        x, y = queue.popleft()
        for dx, dy in STEPS.values():
            to = (x + dx, y + dy)
            if to in free and to not in reached:
                reached[to] = reached[x, y] + 1
                queue.append(to)
    return reached


@cache
def sample(code: str, number: int = 300) -> list[Named]:
    """Initial states, as named."""
    world = world_of(code)
    keys = jax.random.split(jax.random.key(0), number)
    values = np.asarray(jax.jit(jax.vmap(world.reset))(keys).values)
    return [world.all_factors.to_named(row) for row in values]


ROOM_TARGETS = {"TS": ("fish", "fridge", "sink"), "CS": ("rag", "soap", "bucket", "car", "sink")}


@pytest.mark.parametrize("code", ["TS", "CS"])
def test_goto_candidates(code: str) -> None:
    """1.5, on random layouts: `goto_poses` is the set of candidates."""
    world = world_of(code)
    for named in sample(code)[:12]:
        state = world.begin(jnp.asarray(world.all_factors.from_named(named)))
        for target in ROOM_TARGETS[code]:
            assert set(world.goto_poses(state, target)) == candidates(named, target)


@pytest.mark.parametrize("code", ["TS path", "CS path", "MS path"])
def test_path_goes_to_the_nearest_candidate(code: str) -> None:
    """1.5, 4.3: smallest distance, then facing, y, x; in Minecraft the order left, down, right, up of the target."""
    world = world_of(code)
    # Minecraft, y up: standing left of the target means facing right, and so on.
    sides = {(-1, 0): 1, (0, -1): 2, (1, 0): 0, (0, 1): 3}
    for named in sample(code.removesuffix(" path"))[-10:]:
        reached = distances(named)
        play = Play(code)
        start = world.begin(jnp.asarray(world.all_factors.from_named(named)))
        for action in [name for name in world.action_names if name.startswith("goto")]:
            target = action.removeprefix("goto_")
            if code == "MS path":
                beside = [(x + dx, y + dy, d) for x, y in cells_of(named, target) for (dx, dy), d in sides.items()]
                poses = [pose for pose in beside if pose[:2] in reached]
            else:
                poses = sorted((p for p in candidates(named, target) if p[:2] in reached), key=lambda p: p[::-1])
            best = min(poses, key=lambda pose: reached[pose[:2]], default=None)
            play.state = start
            before = play.pose
            play.act(action)
            assert play.pose == (best or before), (action, named)


@pytest.mark.parametrize(
    ("code", "state", "target", "poses"),
    [
        ("CS", "", "car", {(4, 1, 2), (4, 2, 2), (1, 3, 3), (2, 3, 3), (3, 3, 3)}),
        ("TS", "", "fish", {(2, 3, 0), (3, 2, 1)}),
        ("MS", "", "workshop", {(4, 5, 1), (5, 4, 2), (6, 5, 0), (5, 6, 3)}),
    ],
)
def test_random_goto_is_uniform(code: str, state: str, target: str, poses: set[Pose]) -> None:
    """1.5, 4.3: uniform over the candidates; in Minecraft for the workshop only."""
    play, number = Play(code, state), 4000
    index = play.world.action(f"goto_{target}")
    many = jax.jit(jax.vmap(lambda key: play.world.step(key, play.state, jnp.int32(index))[0].values))
    names = [play.world.factors.variable_names.index(f"agent.{name}") for name in ("x", "y", "dir")]
    drawn = Counter(map(tuple, np.asarray(many(jax.random.split(jax.random.key(7), number)))[:, names].tolist()))
    assert set(drawn) == poses
    share = number / len(poses)
    assert sum((count - share) ** 2 / share for count in drawn.values()) < 20  # chi-square, at most 4 degrees


@pytest.mark.parametrize(
    ("code", "state", "action"),
    [
        ("TS", "fish@hand", "goto_fish"),
        ("CS", "rag@hand", "goto_rag"),
        ("CS", "soap@hand", "goto_soap"),
        ("CS", LAYOUT_A, "goto_rag"),
        ("CS path", LAYOUT_A, "goto_rag"),
        ("MS", "", "goto_gem"),
        ("MS", "", "goto_wood4"),
        ("MS path", "", "goto_gem"),
    ],
)
def test_goto_without_candidates_takes_a_step_and_does_nothing(code: str, state: str, action: str) -> None:
    """1.5."""
    play = Play(code, state)
    before = play.named
    assert play.world.goto_poses(play.state, action.removeprefix("goto_")) == []
    play.act(action)
    assert play.named == before
    assert int(play.state.elapsed) == 1


THAWING_DROPS = [
    # front cell, state, cell, lands in skills, in primitives
    ("wall", "agent=8,8,0", "9,8", False, False),
    ("wall below", "agent=8,8,1", "8,9", False, False),
    ("closed fridge", "agent=2,3,0", "3,3", False, False),
    ("open fridge", "agent=2,3,0 fridge.open=1", "3,3", False, True),
    ("open fridge from below", "agent=4,5,3 fridge.open=1", "4,4", False, True),
    ("sink", "agent=5,6,0", "6,6", True, True),
    ("floor", "agent=3,6,2", "2,6", True, True),
]
CARWASH_DROPS = [
    # front cell, agent, where the other item lies, cell, lands in skills, in primitives
    ("wall", "8,8,0", "hand", "9,8", False, False),
    ("car", "1,3,3", "hand", "1,2", True, True),
    ("car, other on another cell", "1,3,3", "2,2", "1,2", True, True),
    ("car, taken", "1,3,3", "1,2", "1,2", False, False),
    ("shelf", "5,5,0", "hand", "6,5", True, True),
    ("shelf, other on another cell", "5,5,0", "6,6", "6,5", True, True),
    ("shelf, taken", "5,5,0", "6,5", "6,5", False, True),
    ("sink", "1,6,0", "hand", "2,6", True, True),
    ("sink, taken", "1,6,0", "2,6", "2,6", True, True),
    ("bucket", "6,2,0", "hand", "7,2", True, True),
    ("bucket, taken", "7,4,3", "7,3", "7,3", True, True),
    ("floor", "8,4,3", "hand", "8,3", True, True),
    ("floor, taken", "8,4,3", "8,3", "8,3", True, True),
]


@pytest.mark.parametrize("code", ["TS", "TP"])
@pytest.mark.parametrize("row", THAWING_DROPS, ids=lambda row: row[0])
def test_drop_table_of_thawing(code: str, row: tuple[str, str, str, bool, bool]) -> None:
    """1.3."""
    _, state, cell, skills, primitives = row
    play = Play(code, f"{state} fish@hand")
    before = play.named
    play.act("drop_fish")
    lands = skills if code == "TS" else primitives
    assert play.named == (changed(play.world, before, f"fish={cell},5") if lands else before)


@pytest.mark.parametrize("code", ["CS", "CP"])
@pytest.mark.parametrize("item", ["rag", "soap"])
@pytest.mark.parametrize("row", CARWASH_DROPS, ids=lambda row: row[0])
def test_drop_table_of_carwash(code: str, item: str, row: tuple[str, str, str, str, bool, bool]) -> None:
    """1.3."""
    _, agent, other_at, cell, skills, primitives = row
    other = "soap" if item == "rag" else "rag"
    x_y = other_at.split(",")
    there = f"{other}@hand" if other_at == "hand" else f"{other}.x={x_y[0]} {other}.y={x_y[1]}"
    play = Play(code, f"agent={agent} {item}@hand {there}")
    if code == "CP":
        play.place("bucket.soapy=1 rag.clean=5")  # nothing but the drop can happen then
    before = play.named
    play.act(f"drop_{item}")
    lands = skills if code == "CS" else primitives
    x, y = cell.split(",")
    assert play.named == (changed(play.world, before, f"{item}.x={x} {item}.y={y}") if lands else before)
    play.place("")  # two items in a cell are a state like any other: it can be given


@pytest.mark.parametrize(
    ("code", "state", "moves"),
    [
        ("TP", "agent=3,6,0", True),
        ("TP", "agent=2,3,0", False),
        ("TP", "agent=2,3,0 fridge.open=1", False),
        ("TP", "agent=5,7,0", False),
        ("TP", "agent=2,6,0 fish=3,6,2", False),
        ("TP", "agent=8,8,0", False),
        ("CP", "agent=4,1,2", False),
        ("CP", "agent=5,7,0", False),
        ("CP", "agent=7,1,1", False),
        ("CP", "agent=7,4,0 rag=8,4,0,5", False),
        ("CP", "agent=7,4,0 rag@hand soap@hand", True),
        ("CP", "agent=1,5,1", True),
    ],
)
def test_forward_moves_iff_the_front_cell_is_free(code: str, state: str, moves: bool) -> None:
    """1.1, 0.2: what is carried shows the agent's cell."""
    play = Play(code, state)
    before = play.named
    x, y, facing = play.pose
    dx, dy = STEPS[facing]
    carried = [item for item in ("fish", "rag", "soap") if item in before and cells_of(before, item) == [(x, y)]]
    play.act("forward")
    after = f"agent={x + dx},{y + dy},{facing} " + " ".join(f"{item}@hand" for item in carried)
    assert play.named == (changed(play.world, before, after) if moves else before)


# 2.4, 3.4: the order inside a step.


@pytest.mark.parametrize(("code", "switch"), [("TS", ""), ("TP", "sink.on=1")])
def test_dropped_in_the_sink_it_thaws_from_the_next_step_on(code: str, switch: str) -> None:
    """2.4: reads 5 after step k and 4 after k + 1; stops at 0."""
    play = Play(code, f"agent=5,6,0 fish@hand {switch}")
    play.act("drop_fish")
    play.expect("fish=6,6,5")
    for level in (4, 3, 2, 1, 0, 0):
        play.act("drop_fish")
        play.expect(f"fish=6,6,{level}")


@pytest.mark.parametrize(
    ("code", "pick", "start", "level"),
    [
        ("TS", "pick_fish", "agent=2,3,0 fridge.open=1 fish.frozen=3", 4),
        ("TS", "pick_fish", "agent=2,3,0 fridge.open=1 fish.frozen=5", 5),
        ("TS", "pick_fish", "agent=5,6,0 fish=6,6,3", 2),
        ("TP", "pick", "agent=2,3,0 fridge.open=1 fish.frozen=3", 4),
        ("TP", "pick", "agent=5,6,0 fish=6,6,3 sink.on=1", 2),
        ("TP", "pick", "agent=5,6,0 fish=6,6,3 sink.on=0", 3),
        ("TP", "pick", "agent=3,6,0 fish=4,6,3 sink.on=1", 3),
    ],
)
def test_picked_it_still_gets_the_update_of_its_old_place(code: str, pick: str, start: str, level: int) -> None:
    """2.4; in the hand the level is then constant."""
    play = Play(code, start)
    for action in (pick, "open", "open"):
        play.act(action)
        play.expect(f"fish@hand fish.frozen={level}")


def test_toggle_acts_from_the_next_step_on() -> None:
    """2.4: the passive update reads the state before the action, in both directions."""
    play = Play("TP", "agent=5,6,0 fish=6,6,4")
    for switch, level in [(1, 4), (0, 3), (1, 3)]:
        play.act("toggle")
        play.expect(f"sink.on={switch} fish.frozen={level}")


def test_soap_raises_cleanness_at_k_plus_1_in_skills_and_only_while_there() -> None:
    """3.4."""
    play = Play("CS", "agent=6,2,0 soap@hand rag=7,3,1,0")
    for action, clean in [("drop_soap", 0), ("toggle", 1), ("pick_soap", 2), ("toggle", 2), ("drop_soap", 2)]:
        play.act(action)
        play.expect(f"rag.clean={clean}")


def test_soap_raises_cleanness_at_k_plus_2_in_primitives_and_for_good() -> None:
    """3.4."""
    play = Play("CP", "agent=6,2,0 soap@hand rag=7,3,1,0")
    for action, soapy, clean in [("drop_soap", 0, 0), ("toggle", 1, 0), ("pick", 1, 1), ("toggle", 1, 2)]:
        play.act(action)
        play.expect(f"bucket.soapy={soapy} rag.clean={clean}")


@pytest.mark.parametrize("code", ["CS", "CP"])
def test_soak_and_cleanness_stop_at_5_and_never_fall(code: str) -> None:
    """3.4."""
    play = Play(code, "rag=2,6,4,5 sink.on=1")
    play.act("toggle")
    play.act("toggle")
    play.expect("rag=2,6,5,5")
    play.place("rag=7,2,5,4 soap=7,2").act("toggle")
    play.act("toggle")
    play.act("toggle")
    play.expect("rag=7,2,5,5")


@pytest.mark.parametrize("code", ["CS", "CP"])
@pytest.mark.parametrize(("soak", "stained"), [(0, 1), (1, 0), (5, 0)])
def test_soak_1_is_enough(code: str, soak: int, stained: int) -> None:
    """3.4."""
    play = Play(code, f"rag=2,1,{soak},5")
    transition = play.act("toggle")
    play.expect(f"car.stained={stained} rag=2,1,{soak},{5 * stained}")
    assert not bool(transition.success)


def test_pick_takes_the_rag_before_the_soap() -> None:
    """3.3, primitives."""
    play = Play("CP", "agent=1,6,0 rag=2,6,0,5 soap=2,6")
    play.act("pick")
    play.expect("rag=1,6,0,5 soap=2,6")
    play.act("pick")
    play.expect("rag=1,6,0,5 soap=1,6")


# 4.3: USE and craft.

USES = [
    # state, what changes
    ("agent=3,4,down", "grass0=0,0 inventory.grass=1"),
    ("agent=3,4,up", "wood0=0,0 inventory.wood=1"),
    ("agent=3,4,up inventory.wood=2", "wood0=0,0 inventory.wood=3"),
    ("agent=7,4,down inventory.wood_pickaxe=1", "stone0=0,0 inventory.stone=1"),
    ("agent=7,4,down", ""),
    ("agent=7,4,down inventory.stone_pickaxe=1 inventory.bridge=1", ""),
    ("agent=5,3,down water3=0,0 inventory.stone_pickaxe=1", "gem=0,0 inventory.gem=1"),
    ("agent=5,3,down water3=0,0", ""),
    ("agent=5,3,down water3=0,0 inventory.wood_pickaxe=1 inventory.bridge=1", ""),
    ("agent=5,4,down inventory.bridge=2", "water3=0,0 inventory.bridge=1"),
    ("agent=6,1,up inventory.bridge=1", "water2=0,0 inventory.bridge=0"),
    ("agent=5,4,down", ""),
    ("agent=5,4,down inventory.rope=1 inventory.wood=1", ""),
    ("agent=4,5,right inventory.bridge=1 inventory.wood=1", ""),
    ("agent=8,8,up inventory.bridge=1", ""),
    ("agent=6,6,up inventory.bridge=1", ""),
]


@pytest.mark.parametrize("code", ["MS", "MP"])
@pytest.mark.parametrize(("state", "change"), USES)
def test_use(code: str, state: str, change: str) -> None:
    """4.3: tools are kept, bridges are spent."""
    play = Play(code, state)
    before = play.named
    play.act("use")
    assert play.named == changed(play.world, before, change)


RECIPES = {
    "stick": ("wood",),
    "wood_pickaxe": ("wood", "stick"),
    "stone_pickaxe": ("stone", "stick"),
    "rope": ("grass",),
    "bridge": ("wood", "rope"),
}


@pytest.mark.parametrize("code", ["MS", "MP"])
@pytest.mark.parametrize("output", RECIPES)
def test_craft(code: str, output: str) -> None:
    """4.3: one of each ingredient is spent, before the workshop only."""
    ingredients = RECIPES[output]
    rich = " ".join(f"inventory.{name}=2" for name in ingredients)
    crafted = " ".join([f"inventory.{output}=1", *(f"inventory.{name}=1" for name in ingredients)])
    cases = [(f"{pose} {rich}", crafted) for pose in ("agent=4,5,right", "agent=5,4,up", "agent=5,6,down")]
    cases += [(f"{pose} {rich}", "") for pose in ("agent=4,5,up", "agent=6,4,up", "agent=6,8,down", "agent=3,4,up")]
    others = {name for recipe in RECIPES.values() for name in recipe} | set(RECIPES)
    for missing in ingredients:  # whatever else is held
        held = " ".join(f"inventory.{name}=2" for name in sorted(others - {missing}))
        cases.append((f"agent=4,5,right {held}", ""))
    for state, change in cases:
        play = Play(code, state)
        before = play.named
        play.act(f"craft_{output}")
        assert play.named == changed(play.world, before, change), state


# Reset.


@pytest.mark.parametrize(("code", "level"), [("TS", 3), ("TP", 5)])
def test_thawing_starts(code: str, level: int) -> None:
    """1.4, 2.1."""
    drawn = sample(code)
    for named in drawn:
        fridge, sink, fish = (cells_of(named, name) for name in ("fridge", "sink", "fish"))
        assert fish[0] in fridge
        assert (named["fish"]["frozen"], named["fridge"]["open"], named["sink"].get("on", 0)) == (level, 0, 0)
        assert {*fridge[0]} <= {2, 3, 4, 5}
        assert min(max(abs(a - c), abs(b - d)) for a, b in sink for c, d in fridge) >= 2
        assert {*itertools.chain(*sink)} <= INSIDE
    assert_starts_free(drawn)
    for name in ("x", "y"):
        assert {named["fridge"][name] for named in drawn} == {2, 3, 4, 5}
        assert {named["fish"][name] - named["fridge"][name] for named in drawn} == {0, 1}


@pytest.mark.parametrize("code", ["CS", "CP"])
def test_carwash_starts(code: str) -> None:
    """1.4, 3.1."""
    drawn = sample(code)
    for named in drawn:
        assert (named["car"]["stained"], named["sink"]["on"], named["bucket"].get("soapy", 0)) == (1, 0, 0)
        assert (named["rag"]["soak"], named["rag"]["clean"]) == (0, 5)
        shelf, rag, soap = (cells_of(named, name) for name in ("shelf", "rag", "soap"))
        assert rag != soap
        assert {*rag, *soap} <= {*shelf}
        taken = [cell for name in ("shelf", "car", "bucket", "sink") for cell in cells_of(named, name)]
        assert len(set(taken)) == len(taken)
        assert {*itertools.chain(*taken)} <= INSIDE
    assert_starts_free(drawn)
    assert {named["bucket"]["x"] for named in drawn} == INSIDE


def assert_starts_free(drawn: list[Named]) -> None:
    """1.4: the agent's cell and its front cell are empty, every direction is possible."""
    for named in drawn:
        x, y, facing = named["agent"].values()
        dx, dy = STEPS[facing]
        assert {(x, y), (x + dx, y + dy)} <= free_cells(named)
    assert {named["agent"]["dir"] for named in drawn} == {0, 1, 2, 3}


@pytest.mark.parametrize(("code", "num_wood", "num_grass"), [("MS", 5, 2), ("MP", 4, 1)])
def test_minecraft_starts(code: str, num_wood: int, num_grass: int) -> None:
    """4.1."""
    drawn = sample(code)
    grass, wood = [f"grass{i}" for i in range(num_grass)], [f"wood{i}" for i in range(num_wood)]
    for named in drawn:
        assert set(named) == {"agent", "inventory", "gem", "workshop", "stone0", *grass, *wood} | {
            f"water{i}" for i in range(4)
        }
        assert set(named["inventory"].values()) == {0}
        x, y = named["gem"]["x"], named["gem"]["y"]
        for i, (dx, dy) in enumerate([(-1, 0), (0, -1), (1, 0), (0, 1)]):
            beside = (x + dx, y + dy)
            assert cells_of(named, f"water{i}") == ([beside] if {*beside} <= INSIDE else [])
        things = [name for name in named if name not in ("agent", "inventory")]
        taken = {cell for name in things for cell in cells_of(named, name)}
        assert len(taken) == sum(len(cells_of(named, name)) for name in things)
        for name in (*grass, *wood, "stone0", "workshop"):
            ((a, b),) = cells_of(named, name)
            assert {a, b} <= {*range(2, 8)}
            assert not taken & {(a + dx, b + dy) for dx, dy in STEPS.values()}
        assert (named["agent"]["x"], named["agent"]["y"]) in free_cells(named)
    assert {named["agent"]["dir"] for named in drawn} == {0, 1, 2, 3}
    assert {named["gem"]["x"] for named in drawn} == INSIDE
    assert {named["gem"]["y"] for named in drawn} == {1, 2}


def test_reserved_carwash_actions_do_nothing() -> None:
    """3.3: 12 actions as an option."""
    world = world_of("CS 12")
    assert (world.num_actions, world.action_names[:10]) == (12, world_of("CS").action_names)
    state = Play("CS 12").state
    for action in (10, 11):
        after, transition = compiled("CS 12")(jax.random.key(0), state, jnp.int32(action))
        np.testing.assert_array_equal(after.values, state.values)
        assert found_edges(world, transition) == set()
        assert int(after.elapsed) == 1
