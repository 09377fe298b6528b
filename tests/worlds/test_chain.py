"""Chain: every rule by hand, the tables of intricate entities, and the graph against interventions."""

import time
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Int, Key

import elden
from elden.viewing.pictures import draw, text
from elden.worlds import WORLDS, Chain, ImpossibleStateError, Transition, WorldOptionError, WorldState
from elden.worlds.chain import jump_table, shear_constants, sheared
from elden.worlds.labels import event_type

SMALL = Chain(depth=3, levels=3, inert=1, noisy=1, intricate=2, values=5, intricate_variables=2)
REAL = replace(SMALL, continuous=True, values=10)
VARIANTS = [
    pytest.param(SMALL, id="discrete"),
    pytest.param(REAL, id="continuous"),
]
GOLDEN_JUMPS = [744, 124, 343, 125, 326, 276, 521, 271]
GOLDEN_SHEAR = ([[0, 21], [35, 0]], [7899875, 11259912])
Edges = set[tuple[str, str]]
Named = dict[str, dict[str, Any]]


@lru_cache(maxsize=64)
def compiled(world: Chain) -> Any:
    return jax.jit(world.step)


def start(world: Chain, **changes: dict[str, Any]) -> WorldState:
    """The state in which every variable is 0 but for the given ones."""
    named: Named = {e.name: dict.fromkeys(e.variable_names, 0) for e in world.factors.entities}
    for entity, variables in changes.items():
        named[entity] |= variables
    return world.from_named(named)


def act(world: Chain, state: WorldState, *actions: str, seed: int = 0) -> tuple[WorldState, Transition]:
    """The state after some actions, and the last transition."""
    for i, name in enumerate(actions):
        key = jax.random.fold_in(jax.random.key(seed), i)
        state, transition = compiled(world)(key, state, jnp.int32(world.action(name)))
    return state, transition


def edges(world: Chain, transition: Transition) -> Edges:
    """The (source, child) pairs of the local graph, diagonal left out."""
    sources = world.factors.source_names("variable")
    found = np.argwhere(np.asarray(transition.graph))
    pairs = {(sources[src], world.factors.variable_names[dst]) for dst, src in found}
    return {(src, dst) for src, dst in pairs if src != dst}


def cut(world: Chain, transition: Transition) -> set[str]:
    """The variables that do not depend on their own past."""
    diagonal = np.diagonal(np.asarray(transition.graph))
    return {name for name, kept in zip(world.factors.variable_names, diagonal, strict=True) if not kept}


def fired(world: Chain, transition: Transition) -> set[str]:
    return {name for name, on in zip(world.book.events, np.asarray(transition.events), strict=True) if on}


def place(world: Chain, entity: str) -> dict[str, Any]:
    """`agent.at` for being at an entity."""
    index = 1 + world.others.index(entity)
    return {"at": index / len(world.others) if world.continuous else index}


def level(world: Chain, count: int) -> dict[str, Any]:
    return {"level": count / (world.levels - 1) if world.continuous else count}


def digits(values: int, variables: int) -> Int[np.ndarray, "state var"]:
    return np.arange(values**variables)[:, None] // values ** np.arange(variables) % values


@lru_cache(maxsize=64)
def compiled_walk(world: Chain, num_envs: int, length: int) -> Any:
    def walk(key: jax.Array, epsilon: jax.Array) -> Any:
        def step(states: WorldState, key: jax.Array) -> tuple[WorldState, Any]:
            act_keys, step_keys = jax.random.split(key, (2, num_envs))
            actions = jax.vmap(partial(world.scripted, epsilon=epsilon))(act_keys, states)
            following, transition = jax.vmap(world.step)(step_keys, states, actions)
            return following, (states, transition, step_keys)

        first = world.reset_many(jax.random.fold_in(key, 1), num_envs)
        return jax.lax.scan(step, first, jax.random.split(key, length))[1]

    return jax.jit(walk)


def random_walk(
    world: Chain, key: jax.Array, epsilon: float, num_envs: int = 8, length: int = 80
) -> tuple[WorldState, Transition, Key[Array, "time env"]]:
    """States, transitions and step keys [time, env] of the scripted policy with random actions mixed in."""
    walked: tuple[WorldState, Transition, Key[Array, "time env"]] = compiled_walk(world, num_envs, length)(
        key, jnp.float32(epsilon)
    )
    return walked


class TestDescription:
    def test_names(self) -> None:
        world = elden.make("chain", depth=2)
        assert isinstance(world, Chain)
        assert WORLDS["chain"] is Chain
        assert world.factors.variable_names == (
            *("agent.at", "link0.level", "link1.level", "inert0.value", "noisy0.value"),
            *("intricate0.v0", "intricate0.v1", "intricate0.v2"),
        )
        assert [str(variable.kind) for variable in world.factors.variables] == ["0..5"] + ["0..1"] * 2 + ["0..9"] * 5
        gotos = tuple(f"goto_{name}" for name in ("link0", "link1", "inert0", "noisy0", "intricate0"))
        assert world.action_names == (*gotos, "touch")
        assert world.stage_names == ("link0 on", "link1 on")

    def test_continuous_variables_are_reals_from_0_to_1(self) -> None:
        world = Chain(continuous=True)
        assert {str(variable.kind) for variable in world.factors.variables} == {"[0, 1]"}
        assert world.factors.variable_names == Chain().factors.variable_names

    def test_no_distractors(self, key: jax.Array) -> None:
        world = Chain(depth=1, inert=0, noisy=0, intricate=0)
        state = world.reset(key)
        assert world.to_named(state) == {"agent": {"at": 0}, "link0": {"level": 0}}
        assert bool(act(world, state, "goto_link0", "touch")[1].success)

    @pytest.mark.parametrize("world", VARIANTS)
    def test_reset(self, world: Chain, key: jax.Array) -> None:
        states = jax.jit(partial(world.reset_many, num_envs=2000))(key)
        values = np.asarray(states.values)
        assert bool(jnp.all(jax.vmap(world.legal)(states)))
        assert np.all(values[:, :4] == 0)
        highest = 1 if world.continuous else 4
        np.testing.assert_allclose(values[:, 4:].mean(0), highest / 2, atol=0.05 * highest)
        # All distractors are drawn independently.
        correlation = np.corrcoef(values[:, 4:].T) - np.eye(values.shape[1] - 4)
        assert np.abs(correlation).max() < 0.1


@pytest.mark.parametrize("world", VARIANTS)
class TestRules:
    def test_goto_depends_on_the_action_alone(self, world: Chain) -> None:
        state, transition = act(world, start(world), "goto_link1")
        assert world.to_named(state)["agent"] == pytest.approx(place(world, "link1"))
        assert fired(world, transition) == {"goto:link1", "noise:noisy0"}
        assert edges(world, transition) == {("action", "agent.at")}
        assert cut(world, transition) == {"agent.at", "noisy0.value"}

    def test_goto_where_one_is_already_changes_nothing(self, world: Chain) -> None:
        _, transition = act(world, start(world, agent=place(world, "inert0")), "goto_inert0")
        assert fired(world, transition) == {"noise:noisy0"}
        assert edges(world, transition) == set()
        assert cut(world, transition) == {"noisy0.value"}

    def test_touch_raises_the_first_link(self, world: Chain) -> None:
        state, transition = act(world, start(world, agent=place(world, "link0")), "touch")
        assert world.to_named(state)["link0"] == pytest.approx(level(world, 1))
        assert fired(world, transition) == {"touch:link0", "noise:noisy0"}
        assert edges(world, transition) == {("action", "link0.level"), ("agent.at", "link0.level")}
        assert cut(world, transition) == {"noisy0.value"}

    def test_touch_raises_a_link_behind_one_that_is_on(self, world: Chain) -> None:
        state = start(world, agent=place(world, "link2"), link1=level(world, 2), link2=level(world, 1))
        state, transition = act(world, state, "touch")
        assert world.to_named(state)["link2"] == level(world, 2)
        assert edges(world, transition) == {(src, "link2.level") for src in ("action", "agent.at", "link1.level")}
        assert bool(transition.success)
        assert float(transition.reward) == 1

    @pytest.mark.parametrize("before", [0, 1])
    def test_touch_of_a_link_behind_one_that_is_not_on_does_nothing(self, world: Chain, before: int) -> None:
        state = start(world, agent=place(world, "link1"), link0=level(world, before))
        after, transition = act(world, state, "touch")
        assert world.to_named(after)["link1"] == level(world, 0)
        assert edges(world, transition) == set()

    @pytest.mark.parametrize("entity", ["link0", "inert0", "noisy0"])
    def test_touch_that_does_nothing(self, world: Chain, entity: str) -> None:
        state = start(world, agent=place(world, entity), link0=level(world, 2))
        after, transition = act(world, state, "touch")
        assert fired(world, transition) == {"noise:noisy0"}
        assert edges(world, transition) == set()
        named, before = world.to_named(after), world.to_named(state)
        assert {name: named[name] for name in named if name != "noisy0"} == {
            name: before[name] for name in named if name != "noisy0"
        }

    def test_touch_nowhere_does_nothing(self, world: Chain) -> None:
        assert fired(world, act(world, start(world), "touch")[1]) == {"noise:noisy0"}

    def test_touch_of_an_intricate_entity(self, world: Chain) -> None:
        state = start(world, agent=place(world, "intricate1"))
        after, transition = act(world, state, "touch")
        assert fired(world, transition) == {"touch:intricate1", "noise:noisy0"}
        own = ("intricate1.v0", "intricate1.v1")
        outside = {(src, child) for src in ("action", "agent.at") for child in own}
        assert edges(world, transition) == outside | {own, own[::-1]}
        assert cut(world, transition) == {"noisy0.value"}
        before, named = world.to_named(state), world.to_named(after)
        assert {name for name in named if named[name] != before[name]} - {"noisy0"} == {"intricate1"}

    def test_noise_is_uniform_and_needs_no_action(self, world: Chain, key: jax.Array) -> None:
        """The value is drawn again whatever one does, also where one touches it; its past plays no part."""
        column = world.factors.variable_index("noisy0.value")
        state = start(world, agent=place(world, "noisy0"))
        keys = jax.random.split(key, 4000)
        drawn = []
        for name in ("touch", "goto_link0", "goto_noisy0"):
            step = jax.jit(jax.vmap(world.step, (0, None, None)))
            drawn.append(np.asarray(step(keys, state, jnp.int32(world.action(name)))[1].next_obs[:, column]))
        assert np.array_equal(drawn[0], drawn[1])
        assert np.array_equal(drawn[0], drawn[2])
        cells = np.floor(drawn[0] * 5) if world.continuous else drawn[0]
        counts = np.bincount(cells.astype(int), minlength=5)
        # Chi-square with four degrees of freedom: above 18.5 once in a thousand.
        assert ((counts - 800) ** 2 / 800).sum() < 18.5


@pytest.mark.parametrize("continuous", [False, True])
class TestRestlessLinks:
    """Of three levels with four values each below the top."""

    def levels(self, world: Chain, state: WorldState) -> list[int]:
        named = world.to_named(state)
        return [round(float(np.asarray(named[link]["level"])) * (8 if world.continuous else 1)) for link in world.links]

    def begin(self, world: Chain, entity: str, *levels: int) -> WorldState:
        shown = {link: {"level": n / 8 if world.continuous else n} for link, n in zip(world.links, levels, strict=True)}
        return start(world, agent=place(world, entity), **shown)

    def test_they_run_through_the_values_of_their_level_until_they_are_on(self, continuous: bool) -> None:
        world = Chain(depth=3, levels=3, restless=4, continuous=continuous)
        state = self.begin(world, "inert0", 2, 7, 8)
        seen = []
        for _ in range(5):
            state, transition = act(world, state, "touch")
            seen.append(self.levels(world, state))
            assert edges(world, transition) == set()
        assert seen == [[3, 4, 8], [0, 5, 8], [1, 6, 8], [2, 7, 8], [3, 4, 8]]
        assert cut(world, transition) == {"noisy0.value"}

    def test_a_touch_raises_them_from_any_value(self, continuous: bool) -> None:
        world = Chain(depth=3, levels=3, restless=4, continuous=continuous)
        for first, then in ((0, 4), (3, 4), (4, 8), (6, 8), (8, 8)):
            after, transition = act(world, self.begin(world, "link0", first, 1, 0), "touch")
            assert self.levels(world, after) == [then, 2, 1]
            raised = {("action", "link0.level"), ("agent.at", "link0.level")}
            assert edges(world, transition) == (raised if first < 8 else set())
            assert int(after.stages.sum()) == (then == 8)
        for before, then in ((8, 4), (7, 3)):  # ready only once the link before it is on
            assert self.levels(world, act(world, self.begin(world, "link1", before, 2, 0), "touch")[0])[1] == then

    def test_the_script_takes_the_shortest_way(self, continuous: bool, key: jax.Array) -> None:
        world = Chain(depth=3, levels=3, restless=4, continuous=continuous)
        _, transition, _ = random_walk(world, key, 0.0, 4, world.shortest)
        solved = np.asarray(transition.success)
        assert not solved[:-1].any()
        assert solved[-1].all()
        assert bool(jnp.all(world.factors.in_range(transition.next_obs)))


class TestJumps:
    def test_step_follows_the_table(self) -> None:
        """v0 counts ones, v1 counts fives: states 0..24 of the table."""
        state = start(SMALL, agent=place(SMALL, "intricate1"), intricate1={"v0": 3, "v1": 4})
        following = int(jump_table(1, 5, 2)[3 + 5 * 4])
        named = SMALL.to_named(act(SMALL, state, "touch")[0])
        assert named["intricate1"] == {"v0": following % 5, "v1": following // 5}
        assert named["intricate0"] == {"v0": 0, "v1": 0}

    def test_the_world_runs_through_all_states(self) -> None:
        state = start(SMALL, agent=place(SMALL, "intricate0"))
        seen = []
        for _ in range(25):
            seen.append(tuple(SMALL.to_named(state)["intricate0"].values()))
            state, _ = act(SMALL, state, "touch")
        assert len(set(seen)) == 25
        assert SMALL.to_named(state)["intricate0"] == {"v0": 0, "v1": 0}

    @pytest.mark.parametrize(("values", "variables"), [(3, 1), (3, 2), (3, 5), (4, 1), (4, 3), (10, 3), (50, 2)])
    def test_one_cycle_that_always_changes_everything(self, values: int, variables: int) -> None:
        for entity in range(5):
            table = jump_table(entity, values, variables)
            state, seen = 0, np.zeros(len(table), bool)
            for _ in table:
                seen[state], state = True, int(table[state])
            assert state == 0
            assert seen.all()
            shown = digits(values, variables)
            assert np.all(shown != shown[table])

    def test_the_tables_are_fixed_and_differ(self) -> None:
        """Rules of the world: they must not change with a version of numpy."""
        assert jump_table(0, 10, 3)[:8].tolist() == GOLDEN_JUMPS
        slopes, offsets = shear_constants(0, 2)
        assert (slopes.tolist(), offsets.tolist()) == GOLDEN_SHEAR
        assert np.mean(jump_table(0, 10, 3) == jump_table(1, 10, 3)) < 0.02

    def test_how_is_hard(self) -> None:
        """Knowing all but one of the variables, or only one, hardly helps to guess the next value of any."""
        shown = digits(10, 3)
        following = shown[jump_table(0, 10, 3)]
        for child in range(3):
            for known in ([0], [1], [2], [0, 1], [0, 2], [1, 2]):
                groups = shown[:, known] @ np.array([1, 10])[: len(known)]
                counts = np.zeros((100, 10))
                np.add.at(counts, (groups, following[:, child]), 1)
                # The best guess for each group; by chance alone ten draws of nine values agree about three times.
                assert counts.max(1).sum() / 1000 < (0.2 if len(known) == 1 else 0.36)

    @pytest.mark.slow
    @pytest.mark.parametrize(("values", "variables"), [(10, 5), (3, 10), (316, 2)])
    def test_the_largest_tables_are_made_in_seconds(self, values: int, variables: int) -> None:
        begun = time.perf_counter()
        table = jump_table(0, values, variables)
        assert time.perf_counter() - begun < 60
        assert np.array_equal(np.sort(table), np.arange(values**variables))


@pytest.fixture(scope="module")
def orbits() -> np.ndarray:
    """Of 32 states of a continuous intricate entity over 2000 touches."""
    slopes, offsets = map(jnp.asarray, shear_constants(0, 3))

    def touch(rows: Array, _: None) -> tuple[Array, Array]:
        return jax.vmap(partial(sheared, slopes=slopes, offsets=offsets))(rows), rows

    first = jax.random.uniform(jax.random.key(0), (32, 3))
    return np.asarray(jax.jit(lambda rows: jax.lax.scan(touch, rows, None, 2000)[1])(first))


class TestShears:
    def test_by_hand(self) -> None:
        """Variable 0 moves by 1/8 + 3/4 frac(3 * 1/4 + 1/2) = 5/16; then variable 1 by 1/8 + 3/4 frac(5 * 13/16)."""
        slopes = jnp.asarray([[0, 3], [5, 0]], jnp.uint32)
        offsets = jnp.asarray([2**23, 0], jnp.uint32)
        after = sheared(jnp.asarray([0.5, 0.25]), slopes, offsets)
        assert after.tolist() == [0.5 + 5 / 16, 0.25 + 1 / 8 + 3 / 4 / 16]

    def test_everything_moves_by_an_eighth_at_least(self, orbits: np.ndarray) -> None:
        assert np.abs(np.diff(orbits, axis=0)).min() >= 1 / 8

    def test_stays_in_bounds_and_never_returns(self, orbits: np.ndarray) -> None:
        assert orbits.min() >= 0
        assert orbits.max() < 1
        assert len(np.unique(orbits.reshape(-1, 3), axis=0)) == 32 * 2000

    def test_stays_spread_out(self, orbits: np.ndarray) -> None:
        late = orbits[-200:].reshape(-1, 3)
        counts = np.stack([np.histogram(column, 10, (0, 1))[0] for column in late.T]) / len(late)
        np.testing.assert_allclose(counts, 0.1, atol=0.02)
        assert np.abs(np.corrcoef(late.T) - np.eye(3)).max() < 0.05

    def test_near_states_part(self) -> None:
        slopes, offsets = map(jnp.asarray, shear_constants(0, 3))
        rows = jnp.asarray([[0.3, 0.4, 0.5], [0.3, 0.4, 0.5 + 1e-5]])
        for _ in range(4):
            rows = jax.vmap(lambda row: sheared(row, slopes, offsets))(rows)
        assert float(jnp.abs(rows[0] - rows[1]).max()) > 0.05

    def test_entities_differ(self) -> None:
        assert not np.array_equal(shear_constants(0, 3)[0], shear_constants(1, 3)[0])


@pytest.mark.slow
def test_variants_agree(key: jax.Array) -> None:
    """Agent, links, events, graph, stages and reward are the same, step by step, under the same actions."""
    discrete, real = SMALL, REAL
    _, told, _ = random_walk(discrete, key, 0.3)

    def follow(states: WorldState, actions: Int[Array, " env"]) -> tuple[WorldState, Transition]:
        keys = jax.random.split(jax.random.key(5), 8)
        following: tuple[WorldState, Transition] = jax.vmap(real.step)(keys, states, actions)
        return following

    first = real.reset_many(key, 8)
    _, seen = jax.jit(lambda first: jax.lax.scan(follow, first, told.action))(first)
    scale = np.array([len(SMALL.others), 2, 2, 2])
    np.testing.assert_allclose(np.asarray(seen.next_obs)[..., :4] * scale, told.next_obs[..., :4], atol=1e-5)
    for field in ("events", "graph", "stages", "success", "reward"):
        assert np.array_equal(getattr(seen, field), getattr(told, field)), field
    assert bool(jnp.all(real.factors.in_range(seen.next_obs)))
    assert bool(told.success.any())


class TestSolving:
    @pytest.mark.parametrize(
        ("depth", "levels", "continuous"),
        [(4, 2, False), pytest.param(9, 2, False, marks=pytest.mark.slow), (2, 4, True)],
    )
    def test_script_takes_the_shortest_way(self, depth: int, levels: int, continuous: bool, key: jax.Array) -> None:
        world = Chain(depth=depth, levels=levels, continuous=continuous)
        assert world.shortest == depth * levels
        _, transition, _ = random_walk(world, key, 0.0, 4, world.shortest + 1)
        solved = np.asarray(transition.success)
        assert not solved[: world.shortest - 1].any()
        assert solved[world.shortest - 1 :].all()
        # Stages come one by one, and stay.
        stages = np.asarray(transition.stages).sum(-1)
        assert np.array_equal(stages[:, 0], np.minimum((np.arange(world.shortest + 1) + 1) // levels, depth))

    @pytest.mark.parametrize("depth", [2, 5])
    def test_no_link_can_be_skipped(self, depth: int) -> None:
        """With the first few links on, no link but the next one reacts."""
        world = Chain(depth=depth)
        for missing in range(depth - 1):
            state = start(world, **{f"link{k}": {"level": int(k < missing)} for k in range(depth)})
            for later in range(missing + 1, depth):
                after, transition = act(world, state, f"goto_link{later}", "touch")
                assert not any(event.startswith("touch") for event in fired(world, transition))
                assert int(after.stages.sum()) == missing

    def test_script_uses_the_gaps_of_a_given_state(self) -> None:
        world = Chain(depth=4)
        state = start(world, link2={"level": 1})
        assert int(world.scripted(jax.random.key(0), state)) == world.action("goto_link3")

    def test_always_solvable(self, key: jax.Array) -> None:
        assert bool(SMALL.solvable(SMALL.reset(key)))

    @pytest.mark.parametrize("world", VARIANTS)
    def test_every_event_occurs(self, world: Chain, key: jax.Array) -> None:
        """The script goes on to the distractors; a few random actions do the rest."""
        _, transition, _ = random_walk(world, key, 0.2)
        happened = np.asarray(transition.events.any((0, 1)))
        assert [name for name, on in zip(world.book.events, happened, strict=True) if not on] == []
        assert {event_type(name) for name in world.book.events} == {"goto", "touch", "noise"}

    @pytest.mark.parametrize("world", [Chain(inert=0, noisy=0, intricate=0), Chain(inert=1, noisy=0, intricate=0)])
    def test_script_has_something_to_do_with_few_distractors(self, world: Chain, key: jax.Array) -> None:
        _, transition, _ = random_walk(world, key, 0.0, 4, 60)
        late = np.asarray(transition.action)[world.shortest :]
        assert late.min() >= 0
        assert len(np.unique(late)) >= 2


def alternatives(world: Chain, key: Key[Array, ""]) -> list[tuple[int, float]]:
    """Every (source, other value) to try: all whole numbers, a few reals; the action is the last source."""
    tries: list[tuple[int, float]] = []
    for index, (name, variable) in enumerate(zip(world.factors.variable_names, world.factors.variables, strict=True)):
        if not world.continuous:
            values = np.arange(variable.kind.high + 1)
        elif name == "agent.at" or name.startswith("link"):
            most = len(world.others) if name == "agent.at" else world.levels - 1
            values = np.arange(most + 1) / most
        else:
            values = np.asarray(jax.random.uniform(jax.random.fold_in(key, index), (8,)))
        tries += [(index, float(value)) for value in values]
    return tries + [(world.factors.num_variables, float(action)) for action in range(world.num_actions)]


def influence(
    world: Chain, state: WorldState, transition: Transition, key: Key[Array, ""], tries: list[tuple[int, float]]
) -> Bool[Array, "dst src"]:
    """Which next variables change when a source is set to one of the other values, all else being equal."""

    def changed(source: Int[Array, ""], value: Array) -> Bool[Array, " dst"]:
        is_action = source == world.factors.num_variables
        action = jnp.where(is_action, value.astype(jnp.int32), transition.action)
        here = jnp.arange(state.values.shape[0]) == source
        values = jnp.where(here, value.astype(state.values.dtype), state.values)
        other = world.step(key, replace(state, values=values), action)[1]
        return other.next_obs != transition.next_obs

    sources = np.array([source for source, _ in tries])
    effect = jax.vmap(changed)(jnp.asarray(sources, jnp.int32), jnp.asarray([v for _, v in tries], jnp.float32))
    columns = [effect[sources == source].any(0) for source in range(world.factors.num_variables + 1)]
    return jnp.stack(columns, axis=-1)


class TestGraph:
    @pytest.mark.parametrize("continuous", [False, True])
    def test_against_interventions(self, continuous: bool, key: jax.Array) -> None:
        """Where a mechanism fired, the parents of its children are exactly what an intervention on which shows."""
        world = Chain(depth=3, levels=3, inert=1, noisy=1, intricate=1, continuous=continuous)
        states, transitions, keys = random_walk(world, key, 0.3, 6, 60)
        states, transitions, keys = jax.tree.map(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (states, transitions, keys)
        )
        tries = alternatives(world, key)
        shown = jax.jit(jax.vmap(partial(influence, world, tries=tries)))(states, transitions, keys)
        claimed = np.asarray(transitions.graph)
        children = np.zeros((len(world.book.events), world.factors.num_variables), bool)
        for rule in world.book.rules:
            for child in rule.children:
                children[world.book.events.index(rule.event), world.factors.variable_index(child)] = True
        moved = np.asarray(transitions.events) @ children
        assert moved.any(0).sum() == world.factors.num_variables - 1  # all but the inert one
        assert np.array_equal(claimed[moved], np.asarray(shown)[moved])
        # What no mechanism moved stays as it is, and is labelled so.
        assert np.array_equal(np.asarray(transitions.obs)[~moved], np.asarray(transitions.next_obs)[~moved])
        identity = np.broadcast_to(np.eye(*claimed.shape[1:]) > 0, claimed.shape)
        assert np.array_equal(claimed[~moved], identity[~moved])

    def test_table_makes_every_variable_matter(self) -> None:
        """With the default 10 values: in every state some other value of each variable changes each next value."""
        for entity in range(3):
            following = digits(10, 3)[jump_table(entity, 10, 3)].reshape(10, 10, 10, 3)
            for axis in range(3):
                assert np.all(following.max(axis) != following.min(axis))

    def test_inert_entities_have_no_edges(self) -> None:
        row = SMALL.factors.variable_index("inert0.value")
        assert not SMALL.book.possible[row].any()
        assert not SMALL.book.possible[:, row].any()


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"depth": 0}, "depth=0 given; chain needs at least 1"),
            ({"levels": 1}, "levels=1 given; chain needs at least 2"),
            ({"restless": 0}, "restless=0 given; chain needs at least 1"),
            ({"inert": -1}, "inert=-1 given"),
            ({"noisy": -1}, "noisy=-1 given"),
            ({"continuous": True, "values": 5}, "reals, not a number of values"),
            ({"intricate": -1}, "intricate=-1 given"),
            ({"values": 1, "intricate": 0}, "values=1 given; chain needs at least 2"),
            ({"values": 2}, "at least 3"),
            ({"intricate_variables": 0}, "intricate_variables=0 given"),
            ({"values": 10, "intricate_variables": 6}, "must not exceed 100000"),
            ({"intricate_variables": 10**9}, "chain takes at most 1000"),
            ({"depth": 10**9}, "depth=1000000000 given; chain takes at most 100"),
            ({"intricate": 101, "intricate_variables": 4}, "1000000 summed over"),
            ({"continuous": True, "intricate_variables": 1}, "at least 2"),
            ({"labels": "authors"}, "there is only 'fix'"),
            ({"max_steps": 0}, "max_steps=0 given"),
            ({"deep": 3}, "did you mean 'depth'"),
            ({"depth": 2.5}, "it takes an integer"),
        ],
    )
    def test_bad_ones_are_refused(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(WorldOptionError, match=message):
            elden.make("chain", **options)

    def test_two_values_are_fine_without_intricate_entities(self, key: jax.Array) -> None:
        world = Chain(values=2, intricate=0, noisy=5)
        assert int(world.reset_many(key, 50).values.max()) == 1

    def test_many_variables_are_fine_in_the_continuous_variant(self) -> None:
        world = Chain(continuous=True, intricate_variables=12)
        after, _ = act(world, start(world, agent=place(world, "intricate0")), "touch")
        assert min(np.asarray(list(world.to_named(after)["intricate0"].values()))) >= 1 / 8


class TestNamedStates:
    @pytest.mark.parametrize("world", VARIANTS)
    def test_round_trip(self, world: Chain, key: jax.Array) -> None:
        states, _, _ = random_walk(world, key, 0.3)
        for i in (0, 7, 29):
            state = jax.tree.map(lambda leaf, i=i: leaf[i, 0], states)
            again = world.from_named(world.to_named(state), bool(state.succeeded))
            assert np.array_equal(again.values, state.values)
            assert np.array_equal(again.stages, state.stages)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"agent": {"at": 0.5}}, "agent.at is not a multiple of 1/7"),
            ({"link1": {"level": 0.7}}, "link1.level is not a multiple of 1/2"),
            ({"noisy0": {"value": 1.5}}, "noisy0.value: 1.5 is out of range"),
        ],
    )
    def test_impossible_reals_are_refused(self, changes: dict[str, dict[str, Any]], message: str) -> None:
        with pytest.raises(ImpossibleStateError, match=message):
            start(REAL, **changes)

    def test_nearly_right_reals_are_taken(self) -> None:
        world = REAL
        state = start(world, agent={"at": 0.14286}, link0={"level": 0.50001})
        assert bool(world.legal(state))
        assert world.to_named(act(world, state, "touch")[0])["link0"] == {"level": 1.0}

    def test_values_out_of_range_are_refused(self) -> None:
        with pytest.raises(ImpossibleStateError, match=r"link0\.level: 3 is out of range"):
            start(SMALL, link0={"level": 3})


class TestPictures:
    @pytest.mark.parametrize("world", VARIANTS)
    def test_scene(self, world: Chain) -> None:
        state = start(world, agent=place(world, "noisy0"), link0=level(world, 2), link1=level(world, 1))
        scene = world.scene(state)
        kinds = [sprite.kind for sprite in scene.sprites]
        assert kinds == ["link"] * 3 + ["inert", "noisy"] + ["intricate"] * 2
        assert [sprite.look.get("level") for sprite in scene.sprites[:3]] == [2, 1, 0]
        noisy = scene.sprites[4]
        assert scene.agent == (noisy.x, noisy.y + 1, 3)
        assert len({(sprite.x, sprite.y) for sprite in scene.sprites}) == 7
        assert scene.status == (("links on", "1/3"), ("agent at", "noisy0"))
        assert draw(scene).shape[1] > 100
        assert "L*" in text(scene)

    def test_nowhere_is_under_no_entity(self) -> None:
        scene = SMALL.scene(start(SMALL))
        assert scene.agent is not None
        assert all(sprite.x != scene.agent[0] for sprite in scene.sprites)

    def test_frames_of_an_episode_have_one_shape(self) -> None:
        world = Chain(depth=9, inert=9)
        frames = [draw(world.scene(start(world, agent=place(world, name)))) for name in ("link0", "inert8")]
        assert frames[0].shape == frames[1].shape


class TestScale:
    @pytest.mark.slow
    def test_64_links_and_100_distractors(self, key: jax.Array) -> None:
        world = Chain(depth=64, inert=34, noisy=33, intricate=33, intricate_variables=2, max_steps=200)
        traces = []

        def step(key: jax.Array, states: WorldState, actions: jax.Array) -> tuple[WorldState, Transition]:
            traces.append(1)
            return world.step_many(key, states, actions)

        compiled_step = jax.jit(step)
        states = jax.jit(partial(world.reset_many, num_envs=4))(key)
        for name in ("goto_link0", "touch", "goto_intricate32", "touch"):
            states, transition = compiled_step(key, states, jnp.full((4,), world.action(name), jnp.int32))
        assert len(traces) == 1
        assert fired(world, jax.tree.map(lambda leaf: leaf[0], transition)) - {
            f"noise:noisy{k}" for k in range(33)
        } == {"touch:intricate32"}
        assert np.asarray(transition.stages).sum(-1).tolist() == [1] * 4
        off_diagonal = edges(world, jax.tree.map(lambda leaf: leaf[0], transition))
        own = {"intricate32.v0", "intricate32.v1"}
        assert off_diagonal == {(s, d) for s in own | {"action", "agent.at"} for d in own if s != d}
