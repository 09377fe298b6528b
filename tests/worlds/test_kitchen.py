"""Kitchen: every rule from states made by hand, the graph by event and by intervention, the script, chance."""

import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float

import elden
from elden.factors import ACTION
from elden.worlds import ImpossibleStateError, Kitchen, Transition, WorldState
from elden.worlds.kitchen import table
from elden.worlds.kitchen.table import BOXES, FOOD, GRIPS, HANDLE, MIDDLE, SPAN

KITCHEN = Kitchen()
XYZ = tuple[float, float, float]
Edges = set[tuple[str, str]]

BUTTER: XYZ = (-0.18, -0.26, 0.815)
MEATBALL: XYZ = (0.07, -0.26, 0.82)
POT: XYZ = (-0.09, -0.01, 0.8)
STOVE: XYZ = (0.10, 0.21, 0.82)
SWITCH: XYZ = (-0.20, 0.26, 0.82)
HANDS = ("nothing", "butter", "meatball", "pot")


def up(place: XYZ, height: float) -> XYZ:
    return place[0], place[1], place[2] + height


def handle_of(pot: XYZ, yaw: float = 0.0) -> XYZ:
    x, y, z = HANDLE
    return pot[0] + x * math.cos(yaw) - y * math.sin(yaw), pot[1] + x * math.sin(yaw) + y * math.cos(yaw), pot[2] + z


def units(place: XYZ) -> list[float]:
    return [float(number) for number in (np.array(place) - MIDDLE) / SPAN]


def turn(yaw: float) -> list[float]:
    return [math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]


def start(
    eef: XYZ = (-0.10, 0.0, 1.02),
    hand: str = "nothing",
    butter: XYZ | str = BUTTER,
    butter_yaw: float = 0.2,
    melt: float = -0.9,
    meatball: XYZ | str = MEATBALL,
    cook: float = -0.9,
    overcooked: int = 0,
    pot: XYZ | str = POT,
    pot_yaw: float = 0.0,
    switch: XYZ = SWITCH,
    on: int = 0,
) -> WorldState:
    """A state in metres. Food may be "in" the pot, "over" it in the hand; the pot "on" the stove, "over" it."""
    if isinstance(pot, str):
        pot = up(STOVE, 0.012) if pot == "over" else STOVE
    places: dict[str, XYZ] = {}
    for name, given in (("butter", butter), ("meatball", meatball)):
        inside = up(pot, 0.006 if name == "butter" and melt == 1 else 0.006 + table.REST[name])
        places[name] = given if not isinstance(given, str) else up(pot, 0.11) if given == "over" else inside
    if hand != "nothing":
        eef = {**places, "pot": handle_of(pot, pot_yaw)}[hand]
    return KITCHEN.from_named(
        {
            "robot": {"eef_pos": units(eef), "grip": float(GRIPS[HANDS.index(hand)])},
            "butter": {"pos": units(places["butter"]), "quat": turn(butter_yaw), "melt": melt},
            "meatball": {"pos": units(places["meatball"]), "cook": cook, "overcooked": overcooked},
            "pot": {"pos": units(pot), "quat": turn(pot_yaw)},
            "stove": {"pos": units(STOVE)},
            "switch": {"pos": units(switch), "on": on},
        }
    )


def made(options: dict[str, Any]) -> WorldState:
    return start(**options)


@lru_cache
def compiled(world: Kitchen) -> Any:
    return jax.jit(world.step)


def act(state: WorldState, *actions: str) -> tuple[WorldState, Transition]:
    """The state after some actions, and the last transition."""
    for name in actions:
        state, transition = compiled(KITCHEN)(jax.random.key(0), state, jnp.int32(KITCHEN.action(name)))
    return state, transition


def value(state: WorldState, name: str) -> Float[np.ndarray, " size"]:
    return np.asarray(state.values)[KITCHEN.factors.flat_slice(KITCHEN.factors.variable_index(name))]


def where(state: WorldState, name: str) -> Float[np.ndarray, "3"]:
    """A position in metres."""
    metres: np.ndarray = value(state, "robot.eef_pos" if name == "robot" else f"{name}.pos") * SPAN + MIDDLE
    return metres


def is_at(state: WorldState, name: str, place: XYZ) -> None:
    np.testing.assert_allclose(where(state, name), place, atol=5e-5, err_msg=name)


def hand_of(state: WorldState) -> str:
    return HANDS[int(np.argmin(np.abs(GRIPS - value(state, "robot.grip"))))]


def changed(before: WorldState, after: WorldState) -> set[str]:
    """The variables that are not what they were."""
    names = KITCHEN.factors.variable_names
    return {name for name in names if not np.array_equal(value(before, name), value(after, name))}


def edges(transition: Transition) -> Edges:
    """The (child, parent) pairs of the local graph, the diagonal left out."""
    names = KITCHEN.factors.source_names("variable")
    pairs = {(names[dst], names[src]) for dst, src in np.argwhere(np.asarray(transition.graph))}
    return {(dst, src) for dst, src in pairs if dst != src}


def given(children: str, parents: str) -> Edges:
    """Every child on every parent but itself."""
    return {(c, p) for c in children.split() for p in parents.split() if c != p}


def does_nothing(state: WorldState, action: str) -> None:
    after, transition = act(state, action)
    assert changed(state, after) == set(), action
    assert edges(transition) == set(), action
    assert not np.any(transition.events)


class TestDescription:
    def test_thirteen_variables_of_six_entities(self) -> None:
        world = elden.make("kitchen")
        assert world == KITCHEN
        assert (world.factors.num_entities, world.factors.num_variables, world.factors.width) == (6, 13, 31)
        assert (world.num_actions, world.max_steps, world.num_stages) == (9, 100, 5)
        assert world.factors.variable_names == (
            *("robot.eef_pos", "robot.grip", "butter.pos", "butter.quat", "butter.melt"),
            *("meatball.pos", "meatball.cook", "meatball.overcooked"),
            *("pot.pos", "pot.quat", "stove.pos", "switch.pos", "switch.on"),
        )
        assert world.factors.offsets == (0, 3, 4, 7, 11, 12, 15, 16, 17, 20, 24, 27, 30)

    def test_grips_differ(self) -> None:
        np.testing.assert_allclose(GRIPS * 0.04, [0.040, 0.015, 0.020, 0.006], rtol=1e-6)

    @pytest.mark.parametrize("layout", ["narrow", "wide"])
    def test_starts(self, layout: table.Layout) -> None:
        world = Kitchen(layout=layout)
        states = jax.jit(world.reset_many, static_argnums=1)(jax.random.key(0), 500)
        assert not np.any(states.stages)
        views = jax.vmap(world.unpack)(states.values)
        for name, box in BOXES[layout].items():
            metres = np.asarray(views[f"{name}.pos"]) * SPAN + MIDDLE
            for axis, (low, high) in enumerate((box.x, box.y)):
                assert low - 1e-5 <= metres[:, axis].min() < low + 0.05 * (high - low)
                assert high + 1e-5 >= metres[:, axis].max() > high - 0.05 * (high - low)
            np.testing.assert_allclose(metres[:, 2], table.START_HEIGHT[name], atol=1e-6)
            away = np.hypot(metres[:, 0] + 0.56, metres[:, 1])
            assert away.max() < 0.76, "out of the arm's reach"
            if box.yaw:
                yaw = 2 * np.arcsin(np.asarray(views[f"{name}.quat"])[:, 3])
                assert 0.9 * box.yaw < np.abs(yaw).max() <= box.yaw + 1e-6
        for name in ("butter.melt", "meatball.cook"):
            assert -1 <= np.min(views[name]) < -0.97
            assert -0.53 < np.max(views[name]) < -0.5
        np.testing.assert_allclose(
            where(jax.tree.map(lambda leaf: leaf[0], states), "robot"), (-0.1, 0, 1.02), atol=1e-6
        )

    def test_wide_holds_narrow(self) -> None:
        for name, box in BOXES["narrow"].items():
            wide = BOXES["wide"][name]
            overlap = [min(a[1], b[1]) - max(a[0], b[0]) for a, b in ((box.x, wide.x), (box.y, wide.y))]
            assert min(overlap) > 0
            assert (wide.x[1] - wide.x[0]) * (wide.y[1] - wide.y[0]) > (box.x[1] - box.x[0]) * (box.y[1] - box.y[0])


class TestMoves:
    @pytest.mark.parametrize(
        ("action", "goal", "parents"),
        [
            ("to_butter", BUTTER, "action butter.pos"),
            ("to_meatball", MEATBALL, "action meatball.pos"),
            ("to_pot", up(POT, 0.11), "action pot.pos"),
            ("to_handle", handle_of(POT, 0.1), "action pot.pos pot.quat"),
            ("to_stove", up(STOVE, 0.16), "action stove.pos"),
            ("to_switch", up(SWITCH, 0.10), "action switch.pos"),
        ],
    )
    def test_of_an_empty_hand(self, action: str, goal: XYZ, parents: str) -> None:
        before = start(pot_yaw=0.1)
        after, transition = act(before, action)
        assert changed(before, after) == {"robot.eef_pos"}
        is_at(after, "robot", goal)
        assert edges(transition) == given("robot.eef_pos", parents)
        assert not transition.graph[0, 0], "where it was does not matter"

    @pytest.mark.parametrize("food", FOOD)
    def test_to_food_in_the_pot_end_above_the_pot(self, food: str) -> None:
        before = made({food: "in"})
        after, transition = act(before, f"to_{food}")
        is_at(after, "robot", up(POT, 0.11))
        assert edges(transition) == given("robot.eef_pos", f"action {food}.pos pot.pos")

    @pytest.mark.parametrize(
        ("hand", "action"),
        [
            *(("nothing", f"to_{name}") for name in ("butter", "handle", "stove")),
            ("butter", "to_pot"),
            ("pot", "to_stove"),
        ],
    )
    def test_to_where_the_arm_is_do_nothing(self, hand: str, action: str) -> None:
        there, _ = act(start(hand=hand, pot_yaw=0.0 if hand == "pot" else 0.1), action)
        does_nothing(there, action)

    def test_to_melted_butter_do_nothing(self) -> None:
        does_nothing(start(butter="in", melt=1.0), "to_butter")

    @pytest.mark.parametrize("food", FOOD)
    def test_with_food_only_over_the_pot(self, food: str) -> None:
        before = start(hand=food)
        for action in ("to_butter", "to_meatball", "to_handle", "to_stove", "to_switch", "grasp", "toggle"):
            does_nothing(before, action)
        after, transition = act(before, "to_pot")
        assert changed(before, after) == {"robot.eef_pos", f"{food}.pos"}
        is_at(after, food, up(POT, 0.11))
        is_at(after, "robot", up(POT, 0.11))
        assert edges(transition) == given(f"robot.eef_pos {food}.pos", "action pot.pos") | given(
            "robot.eef_pos", f"{food}.pos"
        )

    def test_with_the_pot_only_over_the_stove_and_all_in_it_comes_along(self) -> None:
        before = start(hand="pot", butter="in", meatball="in")
        for action in ("to_butter", "to_meatball", "to_pot", "to_handle", "to_switch", "grasp", "toggle"):
            does_nothing(before, action)
        after, transition = act(before, "to_stove")
        assert changed(before, after) == {"robot.eef_pos", "pot.pos", "butter.pos", "meatball.pos"}
        is_at(after, "pot", up(STOVE, 0.012))
        is_at(after, "robot", handle_of(up(STOVE, 0.012)))
        for food in FOOD:
            is_at(after, food, up(STOVE, 0.012 + 0.006 + table.REST[food]))
        food_edges = given("butter.pos meatball.pos", "action stove.pos pot.pos")
        pot_edges = given("robot.eef_pos", "action stove.pos pot.pos") | given("pot.pos", "action stove.pos")
        assert edges(transition) == food_edges | pot_edges

    def test_with_the_pot_leave_what_is_not_in_it(self) -> None:
        before = start(hand="pot")
        after, transition = act(before, "to_stove")
        assert changed(before, after) == {"robot.eef_pos", "pot.pos"}
        expected = given("robot.eef_pos", "action stove.pos pot.pos") | given("pot.pos", "action stove.pos")
        assert edges(transition) == expected

    def test_melted_butter_follows_the_pot(self) -> None:
        after, transition = act(start(hand="pot", butter="in", melt=1.0), "to_stove")
        is_at(after, "butter", up(STOVE, 0.018))
        assert given("butter.pos", "pot.pos stove.pos action") <= edges(transition)

    def test_what_is_held_off_centre_is_what_gets_there(self) -> None:
        after, _ = act(start(eef=up(BUTTER, 0.02)), "grasp", "to_pot")
        is_at(after, "butter", up(POT, 0.11))
        is_at(after, "robot", up(POT, 0.13))


class TestGrasp:
    def test_takes_butter_and_turns_it(self) -> None:
        before = start(eef=up(BUTTER, 0.024))
        after, transition = act(before, "grasp")
        assert hand_of(after) == "butter"
        assert changed(before, after) == {"robot.grip", "butter.quat"}
        np.testing.assert_array_equal(value(after, "butter.quat"), [1, 0, 0, 0])
        assert edges(transition) == given("robot.grip butter.quat", "action robot.eef_pos butter.pos")

    def test_turns_nothing_that_is_straight(self) -> None:
        before = start(eef=BUTTER, butter_yaw=0.0)
        after, transition = act(before, "grasp")
        assert changed(before, after) == {"robot.grip"}
        assert edges(transition) == given("robot.grip", "action robot.eef_pos butter.pos")

    def test_takes_the_meatball(self) -> None:
        before = start(eef=MEATBALL)
        after, transition = act(before, "grasp")
        assert hand_of(after) == "meatball"
        assert changed(before, after) == {"robot.grip"}
        assert edges(transition) == given("robot.grip", "action robot.eef_pos meatball.pos")

    def test_takes_the_pot_by_its_handle(self) -> None:
        before = start(eef=handle_of(POT, 0.15), pot_yaw=0.15)
        after, transition = act(before, "grasp")
        assert hand_of(after) == "pot"
        assert changed(before, after) == {"robot.grip", "pot.quat"}
        assert edges(transition) == given("robot.grip pot.quat", "action robot.eef_pos pot.pos pot.quat")

    def test_takes_the_nearest(self) -> None:
        near = start(butter=(-0.18, -0.26, 0.815), meatball=(-0.135, -0.26, 0.82), eef=(-0.156, -0.26, 0.818))
        assert hand_of(act(near, "grasp")[0]) == "meatball"

    def test_reaches_25_millimetres(self) -> None:
        does_nothing(start(eef=up(BUTTER, 0.026)), "grasp")
        does_nothing(start(), "grasp")

    @pytest.mark.parametrize("food", FOOD)
    def test_takes_nothing_out_of_the_pot(self, food: str) -> None:
        does_nothing(made({food: "in", "eef": up(POT, 0.02)}), "grasp")


class TestDrop:
    def test_of_nothing(self) -> None:
        does_nothing(start(), "drop")

    @pytest.mark.parametrize("thing", ["butter", "meatball", "pot"])
    def test_where_it_was_grasped_moves_nothing(self, thing: str) -> None:
        before = start(hand=thing)
        after, transition = act(before, "drop")
        assert changed(before, after) == {"robot.grip"}
        assert hand_of(after) == "nothing"
        assert edges(transition) == {("robot.grip", ACTION)}

    @pytest.mark.parametrize("food", FOOD)
    @pytest.mark.parametrize("pot", [POT, "on"])
    def test_into_the_pot(self, food: str, pot: XYZ | str) -> None:
        before = made({"hand": food, food: "over", "pot": pot})
        after, transition = act(before, "drop")
        assert changed(before, after) == {"robot.grip", f"{food}.pos"}
        is_at(after, food, up(STOVE if pot == "on" else POT, 0.006 + table.REST[food]))
        assert edges(transition) == {("robot.grip", ACTION)} | given(f"{food}.pos", "action robot.grip pot.pos")

    def test_of_the_pot_onto_the_stove_with_what_is_in_it(self) -> None:
        before = start(hand="pot", pot="over", butter="in", meatball="in")
        after, transition = act(before, "drop")
        assert changed(before, after) == {"robot.grip", "pot.pos", "butter.pos", "meatball.pos"}
        is_at(after, "pot", STOVE)
        is_at(after, "butter", up(STOVE, 0.021))
        fallen = given("pot.pos", "action robot.grip stove.pos") | {("robot.grip", ACTION)}
        assert edges(transition) == fallen | given("butter.pos meatball.pos", "action pot.pos")


class TestToggle:
    def test_flips_the_switch_and_ends_above_it(self) -> None:
        before = start(eef=(SWITCH[0] + 0.03, SWITCH[1] - 0.039, 1.0))
        after, transition = act(before, "toggle")
        assert changed(before, after) == {"robot.eef_pos", "switch.on"}
        is_at(after, "robot", up(SWITCH, 0.10))
        assert value(after, "switch.on") == 1
        assert edges(transition) == given("switch.on robot.eef_pos", "action robot.eef_pos switch.pos")
        assert value(act(after, "toggle")[0], "switch.on") == 0

    def test_needs_to_be_near(self) -> None:
        does_nothing(start(eef=(SWITCH[0] + 0.03, SWITCH[1] - 0.041, 0.92)), "toggle")

    def test_needs_an_empty_hand(self) -> None:
        near = (SWITCH[0] + 0.045, SWITCH[1], 0.815)
        does_nothing(start(hand="butter", butter=near), "toggle")


HOT: dict[str, Any] = {"pot": "on", "on": 1}
WAIT = "drop"
"""An empty hand can drop nothing: a way to wait."""


class TestHeat:
    def test_melts_butter(self) -> None:
        before = start(**HOT, butter="in", melt=-0.9)
        after, transition = act(before, WAIT)
        assert changed(before, after) == {"butter.melt"}
        np.testing.assert_allclose(value(after, "butter.melt"), -0.7, atol=1e-6)
        assert edges(transition) == given("butter.melt", "butter.pos pot.pos stove.pos switch.on")

    @pytest.mark.parametrize(("melt", "steps"), [(-1.0, 10), (-0.95, 10), (-0.6, 8), (-0.5, 8)])
    def test_takes_8_to_10_steps(self, melt: float, steps: int) -> None:
        state = start(**HOT, butter="in", melt=melt)
        for k in range(1, steps + 1):
            state, _ = act(state, WAIT)
            assert (value(state, "butter.melt") == 1) == (k == steps)
        assert changed(state, act(state, WAIT)[0]) == set()

    def test_melted_butter_lies_in_the_middle(self) -> None:
        inside = (STOVE[0] + 0.03, STOVE[1] - 0.02, STOVE[2] + 0.021)
        before = start(**HOT, butter=inside, melt=0.9, pot_yaw=0.1)
        after, transition = act(before, WAIT)
        assert changed(before, after) == {"butter.melt", "butter.pos", "butter.quat"}
        is_at(after, "butter", up(STOVE, 0.006))
        np.testing.assert_array_equal(value(after, "butter.quat"), value(after, "pot.quat"))
        melting = given("butter.melt", "butter.pos pot.pos stove.pos switch.on")
        assert edges(transition) == melting | given("butter.pos butter.quat", "butter.melt pot.pos pot.quat")

    def test_cooks_the_meatball_in_melted_butter(self) -> None:
        before = start(**HOT, butter="in", melt=1.0, meatball="in", cook=-0.9)
        after, transition = act(before, WAIT)
        assert changed(before, after) == {"meatball.cook"}
        np.testing.assert_allclose(value(after, "meatball.cook"), -0.7, atol=1e-6)
        assert edges(transition) == given("meatball.cook", "meatball.pos pot.pos stove.pos switch.on butter.melt")

    def test_does_not_burn_what_is_cooked(self) -> None:
        does_nothing(start(**HOT, butter="in", melt=1.0, meatball="in", cook=1.0), WAIT)

    @pytest.mark.parametrize("butter", ["in", BUTTER])
    def test_spoils_the_meatball_before_the_butter_has_melted(self, butter: XYZ | str) -> None:
        before = start(**HOT, butter=butter, meatball="in")
        after, transition = act(before, WAIT)
        assert changed(before, after) == {"meatball.overcooked"} | ({"butter.melt"} if butter == "in" else set())
        expected = given("meatball.overcooked", "meatball.pos pot.pos stove.pos switch.on butter.melt")
        assert expected <= edges(transition)
        assert not bool(KITCHEN.solvable(after))

    def test_looks_at_the_state_before_it(self) -> None:
        """The meatball is spoilt in the very step in which the butter melts, and fit to cook in the next one."""
        after, _ = act(start(**HOT, butter="in", melt=0.9, meatball="in"), WAIT)
        assert value(after, "butter.melt") == 1
        assert value(after, "meatball.overcooked") == 1

    def test_comes_before_the_skill(self) -> None:
        after, _ = act(start(**HOT, butter="in", melt=0.9, meatball="over", hand="meatball"), "drop")
        assert value(after, "butter.melt") == 1
        assert value(after, "meatball.overcooked") == 0
        assert value(after, "meatball.cook") == np.float32(-0.9)
        after, _ = act(start(**HOT, butter="in", melt=0.9), "to_butter")
        is_at(after, "robot", (-0.10, 0.0, 1.02))

    def test_stays_away_from_a_meatball_that_is_spoilt(self) -> None:
        does_nothing(start(**HOT, butter="in", melt=1.0, meatball="in", overcooked=1), WAIT)

    @pytest.mark.parametrize(
        "cold", [{"pot": POT, "on": 1}, {"pot": "on", "on": 0}, {"pot": "over", "hand": "pot", "on": 1}], ids=str
    )
    def test_needs_the_switch_and_the_pot_on_the_stove(self, cold: dict[str, Any]) -> None:
        does_nothing(start(**cold, butter="in", meatball="in"), "toggle")

    def test_needs_food_in_the_pot(self) -> None:
        does_nothing(start(**HOT), WAIT)
        does_nothing(start(**HOT, butter="over", hand="butter"), "toggle")


class TestStagesAndSuccess:
    def stages(self, state: WorldState) -> list[int]:
        return [int(reached) for reached in act(state, "grasp")[1].stages]

    @pytest.mark.parametrize(
        ("reached", "options"),
        [
            ([0, 0, 0, 0, 0], {}),
            ([1, 0, 0, 0, 0], {"butter": "in"}),
            ([0, 1, 0, 0, 0], {"pot": "on"}),
            ([0, 0, 0, 0, 0], {"butter": "over", "hand": "butter"}),
            ([0, 0, 0, 0, 0], {"pot": "over", "hand": "pot"}),
            ([1, 1, 1, 0, 0], {**HOT, "butter": "in", "melt": 1.0}),
            ([1, 1, 1, 0, 0], {**HOT, "butter": "in", "melt": 1.0, "meatball": "in", "cook": 0.5}),
            ([1, 1, 1, 1, 0], {**HOT, "butter": "in", "melt": 1.0, "meatball": "in", "cook": 1.0}),
            ([1, 1, 1, 1, 1], {"pot": "on", "butter": "in", "melt": 1.0, "meatball": "in", "cook": 1.0}),
            (
                [1, 1, 1, 0, 0],
                {"pot": "on", "butter": "in", "melt": 1.0, "meatball": "over", "hand": "meatball", "cook": 1.0},
            ),
            (
                [1, 1, 1, 0, 0],
                {"pot": "on", "butter": "in", "melt": 1.0, "meatball": "in", "cook": 1.0, "overcooked": 1},
            ),
        ],
        ids=str,
    )
    def test_what_holds(self, reached: list[int], options: dict[str, Any]) -> None:
        assert self.stages(start(**options)) == reached

    def test_stay_reached(self) -> None:
        _, transition = act(start(pot="on", eef=handle_of(STOVE)), "grasp", "to_stove")
        assert np.asarray(transition.stages).tolist() == [False, True, False, False, False]

    def test_success_is_turning_the_stove_off(self) -> None:
        before = start(**HOT, butter="in", melt=1.0, meatball="in", cook=1.0, eef=up(SWITCH, 0.1))
        after, transition = act(before, "toggle")
        assert (bool(transition.success), float(transition.reward), bool(transition.terminated)) == (True, 1.0, False)
        after, transition = act(after, "toggle")
        assert float(transition.reward) == 1.0, "success is kept"

    def test_by_hand_butter_first(self) -> None:
        way = ("to_butter grasp to_pot drop to_handle grasp to_stove drop to_switch toggle" + " to_switch" * 10).split()
        way += ("to_meatball grasp to_pot drop to_switch" + " to_switch" * 10).split()
        state, transition = act(start(), *way)
        assert not bool(transition.success)
        assert bool(act(state, "toggle")[1].success)

    def test_by_hand_stove_first(self) -> None:
        way = ("to_switch toggle to_handle grasp to_stove drop to_butter grasp to_pot drop" + " to_switch" * 10).split()
        way += ("to_meatball grasp to_pot drop to_switch" + " to_switch" * 10 + " toggle").split()
        assert bool(act(start(), *way)[1].success)

    def test_meatball_first_is_a_dead_end(self) -> None:
        state, _ = act(start(), "to_meatball", "grasp", "to_pot", "drop")
        assert not bool(KITCHEN.solvable(state))
        way = ("to_butter grasp to_pot drop to_handle grasp to_stove drop to_switch toggle" + " to_switch" * 25).split()
        state, transition = act(state, *way, "toggle")
        assert value(state, "meatball.overcooked") == 1
        assert np.asarray(transition.stages).tolist() == [True, True, True, False, False]


class TestSolvable:
    @pytest.mark.parametrize(
        ("expected", "options"),
        [
            (True, {}),
            (True, {"hand": "meatball"}),
            (False, {"overcooked": 1}),
            (False, {"meatball": "in"}),
            (True, {"meatball": "in", "butter": "in", "melt": 1.0}),
            (False, {"meatball": "over", "hand": "meatball"}),
            (False, {"meatball": "over", "hand": "meatball", "butter": "in"}),
            (False, {"meatball": "over", "hand": "meatball", "pot": "on", "on": 1}),
            (True, {"meatball": "over", "hand": "meatball", "butter": "in", "pot": "on", "on": 1}),
            (False, {"meatball": "over", "hand": "meatball", "butter": "in", "pot": "on"}),
            (True, {"meatball": "over", "hand": "meatball", "butter": "in", "melt": 1.0}),
            (False, {"meatball": "in", "butter": "over", "hand": "butter"}),
        ],
        ids=str,
    )
    def test_by_hand(self, expected: bool, options: dict[str, Any]) -> None:
        assert bool(KITCHEN.solvable(start(**options))) == expected


NUM_ENVS = 200
Walk = tuple[WorldState, Transition, Bool[Array, "time env"]]


@lru_cache
def compiled_walk(world: Kitchen) -> Any:
    def walk(key: jax.Array, first: WorldState, epsilon: jax.Array) -> Walk:
        num_envs = first.elapsed.shape[0]

        def step(states: WorldState, key: jax.Array) -> tuple[WorldState, Walk]:
            act_keys, step_keys = jax.random.split(key, (2, num_envs))
            actions = jax.vmap(lambda k, s: world.scripted(k, s, epsilon))(act_keys, states)
            following, transition = jax.vmap(world.step)(step_keys, states, actions)
            return following, (states, transition, jax.vmap(world.legal)(following))

        walked: Walk = jax.lax.scan(step, first, jax.random.split(key, world.max_steps))[1]
        return walked

    return jax.jit(walk)


@lru_cache
def walk(world: Kitchen, epsilon: float, num_envs: int = NUM_ENVS) -> Walk:
    """States, transitions and whether the next states are legal, [time, env], of scripted play with random actions."""
    first = jax.jit(world.reset_many, static_argnums=1)(jax.random.key(1), num_envs)
    walked: Walk = compiled_walk(world)(jax.random.key(0), first, jnp.float32(epsilon))
    return walked


def judged(values: Array) -> tuple[WorldState, Bool[Array, ""]]:
    """An episode that starts there, and whether it is said to be solvable."""
    state = KITCHEN.begin(values)
    return state, KITCHEN.solvable(state)


class TestScript:
    def test_solves_all_layouts_in_at_most_40_steps(self) -> None:
        _, transition, legal = walk(KITCHEN, 0.0)
        assert bool(jnp.all(legal))
        assert np.asarray(transition.success)[:40].any(axis=0).all()

    def test_solves_exactly_what_is_solvable_also_in_the_midst_of_things(self) -> None:
        """From states of random play: those that are said to be solvable are solved, and no others are."""
        states, _, _ = walk(KITCHEN, 1.0)
        times = np.random.default_rng(0).integers(10, 100, NUM_ENVS)
        middle: WorldState = jax.tree.map(lambda leaf: leaf[times, np.arange(NUM_ENVS)], states)
        first, said = jax.jit(jax.vmap(judged))(middle.values)
        _, transition, _ = compiled_walk(KITCHEN)(jax.random.key(2), first, jnp.float32(0))
        np.testing.assert_array_equal(np.asarray(transition.success).any(axis=0), said)
        assert 0.2 < said.mean() < 0.9

    def test_edges_are_rare(self) -> None:
        """The paper counts at most 3 % of its kitchen's pairs as dependent."""
        off_diagonal = ~np.eye(13, 14, dtype=bool)
        rates = [np.asarray(walk(KITCHEN, epsilon)[1].graph)[..., off_diagonal].mean() for epsilon in (0.3, 1.0)]
        assert 0.005 < rates[1] < rates[0] < 0.03

    @pytest.mark.slow
    @pytest.mark.parametrize("layout", ["narrow", "wide"])
    @pytest.mark.parametrize("chance", [{}, {"skill_noise": 2.0}, {"skill_failure": 0.2}], ids=str)
    def test_solves_a_thousand_layouts_of_any_kind(self, layout: table.Layout, chance: dict[str, Any]) -> None:
        _, transition, legal = walk(Kitchen(layout=layout, **chance), 0.0, 1000)
        assert bool(jnp.all(legal))
        assert np.asarray(transition.success)[: 60 if "skill_failure" in chance else 40].any(axis=0).all()


CHANCY = Kitchen(skill_noise=1.0, skill_failure=0.25)


@lru_cache
def compiled_chances() -> Any:
    return jax.jit(jax.vmap(CHANCY.step, (0, None, None)))


def chances(state: WorldState, action: str) -> tuple[np.ndarray, Transition, np.ndarray]:
    """Values after many tries of one step, the transitions, and which tries came off."""
    keys = jax.random.split(jax.random.key(3), 2000)
    after, transition = compiled_chances()(keys, state, jnp.int32(CHANCY.action(action)))
    return np.asarray(after.values), transition, np.any(transition.events, axis=1)


class TestChance:
    @pytest.mark.parametrize(
        ("options", "action", "name", "goal", "mean", "spread"),
        [
            ({}, "to_stove", "robot.eef_pos", up(STOVE, 0.16), (0, 0, 0), (1.3, 1.3, 1.3)),
            ({"hand": "pot", "pot": "over"}, "drop", "pot.pos", STOVE, (3.3, -6.6, 0), (6.1, 0.2, 0)),
            ({"hand": "butter", "butter": "over"}, "drop", "butter.pos", up(POT, 0.021), (2.8, 0.1, 0), (1.6, 0.6, 0)),
            (
                {"hand": "meatball", "meatball": "over"},
                "drop",
                "meatball.pos",
                up(POT, 0.026),
                (5, 0.1, 0),
                (0.3, 0, 0),
            ),
        ],
        ids=["arm", "pot", "butter", "meatball"],
    )
    def test_skills_miss_as_measured(
        self, options: dict[str, Any], action: str, name: str, goal: XYZ, mean: XYZ, spread: XYZ
    ) -> None:
        """In millimetres. The far ends are cut off, hence a little less spread."""
        values, _, done = chances(start(**options), action)
        columns = KITCHEN.factors.flat_slice(KITCHEN.factors.variable_index(name))
        missed = 1000 * (values[done][:, columns] * SPAN + MIDDLE - goal)
        np.testing.assert_allclose(missed.mean(axis=0), mean, atol=0.5)
        np.testing.assert_allclose(missed.std(axis=0), spread, atol=0.1 + 0.08 * max(spread))

    def test_a_failed_skill_leaves_no_trace(self) -> None:
        before = start(eef=BUTTER)
        values, transition, done = chances(before, "grasp")
        assert done.mean() == pytest.approx(0.75, abs=0.04)
        assert np.all(values[~done] == np.asarray(before.values))
        assert np.all(np.asarray(transition.graph)[~done] == np.eye(13, 14, dtype=bool))

    def test_without_it_keys_do_not_matter(self) -> None:
        state = start(hand="pot", pot="over")
        for action in ("to_stove", "drop"):
            results = [
                compiled(KITCHEN)(jax.random.key(k), state, jnp.int32(KITCHEN.action(action)))[0] for k in (0, 7)
            ]
            np.testing.assert_array_equal(results[0].values, results[1].values)


class TestGraph:
    def test_full_labels_add_what_must_hold(self) -> None:
        plain, full = KITCHEN.book, Kitchen(full_labels=True).book
        assert plain.events == full.events
        names = KITCHEN.factors.source_names("variable")
        added = {
            e: {(names[d], names[s]) for d, s in np.argwhere(full.edges[e] & ~plain.edges[e])} for e in full.events
        }
        assert added["move:pot"] == {("robot.eef_pos", "robot.grip")}
        assert added["move:butter"] == given("robot.eef_pos", "robot.grip butter.melt")
        assert added["carry:pot:meatball"] == {("meatball.pos", "robot.grip")}
        assert added["toggle"] == given("switch.on robot.eef_pos", "robot.grip")
        assert added["melt"] == given("butter.melt", "pot.quat robot.grip")
        assert added["melted"] == given("butter.pos butter.quat", "stove.pos switch.on robot.grip") | {
            ("butter.quat", "butter.pos")
        }
        assert added["cook"] == given("meatball.cook", "pot.quat robot.grip meatball.overcooked")
        assert added["drop:pot:butter"] == given("butter.pos", "stove.pos robot.grip")
        assert added["drop:butter:fall"] == set()
        assert all(not np.any(plain.edges[e] & ~full.edges[e]) for e in plain.events)


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"butter": up(BUTTER, 0.05)}, "butter is neither on the table nor in the pot nor held over it"),
    ({"meatball": up(POT, 0.11)}, "meatball is neither on the table nor in the pot nor held over it"),
    ({"pot": up(POT, 0.05)}, "the pot is neither on the table nor on the stove nor held over it"),
    ({"pot": up(STOVE, 0.03)}, "the pot is neither on the table nor on the stove nor held over it"),
    ({"butter": (*MEATBALL[:2], 0.815)}, "butter and meatball overlap"),
    ({"switch": STOVE}, "stove and switch overlap"),
    ({"pot_yaw": 1.0}, "pot is tilted, turned by more than 45 degrees"),
    ({"butter": (-0.18, -0.55, 0.815)}, "butter is out of reach"),
    ({"switch": up(SWITCH, 0.1)}, "switch is not at height 0.82"),
    ({"melt": 1.0}, "the butter has melted but is not on the pot's floor"),
    ({"cook": 1.0}, "the meatball is cooked but the butter has not melted"),
]


@pytest.mark.parametrize(("options", "words"), IMPOSSIBLE, ids=[words for _, words in IMPOSSIBLE])
def test_impossible_states_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ImpossibleStateError, match=words):
        start(**options)
