"""The true local graph, checked against the simulator itself.

A ground-truth edge src -> dst says: in this transition, some other value of src, everything else equal, would have led
to another next value of dst. So take transitions, set each variable in turn to each of its other values (a continuous
one to what it is in other transitions, to some values of its range, and a little beside its own; the action to each
other action), step again with the same random numbers, and see what changes.

*Claims.* For every edge that the graph claims: did some intervention change the child? If not, it is unconfirmed. Any
value in the variable's range counts, also one that puts things where they could not be (a carried item shows (0, 0)
under `skills`: with another x alone it is nowhere, which is to say not in the hand). Where the agent is moved, what it
carries is once left behind and once taken along: both read "everything else equal".

*Omissions.* For every child that an event wrote in this transition: which parents outside the graph changed it all the
same? Here only interventions count that give a legal state. Children that no event wrote are left out on purpose: a
failed pick would have succeeded from elsewhere, so by a plain but-for test nearly everything depends on nearly
everything nearly always. The labels are about what did happen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Num

from elden.factors import ACTION, Discrete
from elden.worlds.base import View, World, WorldState
from elden.worlds.grid import Cell, covers, int32
from elden.worlds.kitchen.twin import Kitchen
from elden.worlds.labels import event_type
from elden.worlds.minecraft import Minecraft
from elden.worlds.rooms import RoomWorld

_OTHERS = 12
_BESIDE = 0.05
_SAME = 1e-5
"""Of a continuous variable: how many values are tried of each sort (those of other samples, of its range, beside its
own), how far the last are off, and up to where two results are the same."""


class Sampled(NamedTuple):
    """Transitions to be audited."""

    states: WorldState
    actions: Int[np.ndarray, " sample"]
    events: Bool[np.ndarray, "sample event"]


class Changes(NamedTuple):
    """Which sources change which next variables.

    Attributes:
        by_any: Set to some other value of their range.
        by_legal: Set alone to some other value that gives a legal state.
        none: Which next variables are as they were, with nothing set.
    """

    by_any: Bool[Array, "*batch dst src"]
    by_legal: Bool[Array, "*batch dst src"]
    none: Bool[Array, "*batch dst"]


@dataclass(frozen=True)
class EventReport:
    """How the labels of one event type fared.

    Attributes:
        event: The event type, such as "pick" or "blocked".
        transitions: In how many audited transitions it happened.
        claimed: Off-diagonal edges that it claimed there.
        confirmed: Those of them that some intervention confirmed.
        confirmed_legal: Those that an intervention on the parent alone, giving a legal state, confirmed.
        never_confirmed: Edge types, as (child, parent), that were claimed but not once confirmed.
        omitted: How often a parent outside the graph changed a child that the event wrote, by (child, parent).
        written: How often the event wrote each child.
    """

    event: str
    transitions: int
    claimed: int
    confirmed: int
    confirmed_legal: int
    never_confirmed: tuple[tuple[str, str], ...]
    omitted: dict[tuple[str, str], int]
    written: dict[str, int]


@dataclass(frozen=True)
class Audit:
    """All that an audit found, with what is needed to look closer."""

    world: World
    samples: Sampled
    graphs: Bool[np.ndarray, "sample dst src"]
    changes: Changes
    reports: tuple[EventReport, ...]

    def unconfirmed(self) -> list[tuple[int, str, str, tuple[str, ...]]]:
        """Every claim without a confirming intervention: (sample, child, parent, events of the sample)."""
        n = self.world.factors.num_variables
        off_diagonal = ~np.eye(n, n + 1, dtype=bool)
        names = self.world.factors.source_names("variable")
        rows = np.argwhere(self.graphs & ~np.asarray(self.changes.by_any) & off_diagonal)
        events = self.world.book.events
        return [
            (int(i), names[d], names[s], tuple(np.array(events)[self.samples.events[i]].tolist())) for i, d, s in rows
        ]


def sample(
    world: World, key: Key[Array, ""], per_event: int = 40, steps: int = 20_000, epsilon: float = 0.3
) -> Sampled:
    """Transitions of scripted play mixed with random actions, some of every event that occurs."""
    num_envs = max(1, steps // max(world.max_steps, 100))
    length = steps // num_envs
    states, actions, events = jax.jit(partial(_play, world, num_envs, length, epsilon))(key)
    flat: tuple[WorldState, Array, Array] = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (states, actions, events)
    )
    happened = np.asarray(flat[2])
    rng = np.random.default_rng(int(jax.random.randint(key, (), 0, 2**30)))
    chosen: set[int] = set()
    for column in happened.T:
        chosen.update(rng.permutation(np.flatnonzero(column))[:per_event].tolist())
    index = np.array(sorted(chosen))
    picked: WorldState = jax.tree.map(lambda leaf: leaf[index], flat[0])
    return Sampled(picked, np.asarray(flat[1])[index], happened[index])


def _play(
    world: World, num_envs: int, length: int, epsilon: float, key: Key[Array, ""]
) -> tuple[WorldState, Int[Array, "time env"], Bool[Array, "time env event"]]:
    reset_key, scan_key = jax.random.split(key)

    def step(
        states: WorldState, key: Key[Array, ""]
    ) -> tuple[WorldState, tuple[WorldState, Int[Array, " env"], Bool[Array, "env event"]]]:
        act_key, step_key = jax.random.split(key)
        act_keys = jax.random.split(act_key, num_envs)
        actions = jax.vmap(lambda key, state: world.scripted(key, state, epsilon))(act_keys, states)
        after, transition = world.step_many(step_key, states, actions)
        return after, (states, actions, transition.events)

    start = world.reset_many(reset_key, num_envs)
    played: tuple[WorldState, Array, Array] = jax.lax.scan(step, start, jax.random.split(scan_key, length))[1]
    return played


class Interventions(NamedTuple):
    """What is tried in every transition, the actions apart.

    Attributes:
        sources: The variable that each one sets.
        values: The observation that it is taken from.
        relative: Whether it is added to what the variable is.
    """

    sources: Int[np.ndarray, " case"]
    values: Num[np.ndarray, "case width"]
    relative: Bool[np.ndarray, " case"]


def interventions(world: World, samples: Sampled) -> Interventions:
    """Every value of a discrete variable; of a continuous one those of other samples, of its range, and beside it."""
    factors, rng = world.factors, np.random.default_rng(0)
    seen = np.asarray(jax.vmap(world.observe)(samples.states))
    rows: list[tuple[int, Num[np.ndarray, " width"], bool]] = []
    for variable, (kind, first) in enumerate(zip((v.kind for v in factors.variables), factors.offsets, strict=True)):
        if isinstance(kind, Discrete):
            for value in range(kind.n):
                row = np.zeros(factors.width, seen.dtype)
                row[first] = value
                rows.append((variable, row, False))
            continue
        others = seen[rng.integers(len(seen), size=_OTHERS)]
        anywhere, beside = (
            rng.uniform(low, high, (_OTHERS, factors.width)).astype(seen.dtype)
            for low, high in ((kind.low, kind.high), (-_BESIDE, _BESIDE))
        )
        rows += [(variable, row, False) for row in (*others, *anywhere)] + [(variable, row, True) for row in beside]
    sources, values, relative = zip(*rows, strict=True)
    return Interventions(np.array(sources), np.stack(values), np.array(relative))


def changes(
    world: World, keys: Key[Array, " chance"], tried: Interventions, state: WorldState, action: Int[Array, ""]
) -> Changes:
    """Intervene on every source of one transition, for several random draws."""
    factors = world.factors
    n = factors.num_variables
    owner = np.repeat(np.arange(n), np.diff([*factors.offsets, factors.width]))
    hidden = state.values.shape[0] - factors.width

    def outcomes(values: Num[Array, " value"], action: Int[Array, ""]) -> Num[Array, "chance width"]:
        other = WorldState(values, state.elapsed, state.succeeded, state.stages)
        return jax.vmap(lambda key: world.step(key, other, action)[1].next_obs)(keys)

    base = outcomes(state.values, action)

    def apart_from(other: Num[Array, "*chance width"]) -> Bool[Array, " dst"]:
        apart = jnp.any(jnp.abs(base - other) > (_SAME if jnp.issubdtype(base.dtype, jnp.floating) else 0), axis=0)
        return jax.ops.segment_max(apart.astype(jnp.int32), jnp.asarray(owner), num_segments=n).astype(bool)

    def differs(values: Num[Array, " value"], action: Int[Array, ""]) -> Bool[Array, " dst"]:
        return apart_from(outcomes(values, action))

    def intervene(
        source: Int[Array, ""], row: Num[Array, " width"], relative: Bool[Array, ""]
    ) -> tuple[Bool[Array, " dst"], Bool[Array, " dst"]]:
        own = state.values[: factors.width]
        value = jnp.where(relative, own + row, row)
        mine = jnp.asarray(owner) == source
        alone = jnp.where(jnp.pad(mine, (0, hidden)), jnp.pad(value, (0, hidden)), state.values)
        new = jnp.any(mine & (value != own))
        together = world.taken_along(state.values, alone)
        apart = differs(alone, action)
        legal = world.legal(WorldState(alone, state.elapsed, state.succeeded, state.stages))
        return (apart | differs(together, action)) & new, apart & legal & new

    by_any, by_legal = jax.vmap(intervene)(*map(jnp.asarray, tried))
    by_action = jax.vmap(lambda other: differs(state.values, other) & (other != action))(
        jnp.arange(world.num_actions, dtype=action.dtype)
    )

    def by_source(apart: Bool[Array, "case dst"]) -> Bool[Array, "dst src"]:
        sums = jax.ops.segment_max(apart.astype(jnp.int32), jnp.asarray(tried.sources), num_segments=n)
        return jnp.concatenate([sums.astype(bool), jnp.any(by_action, axis=0)[None]]).T

    return Changes(by_source(by_any), by_source(by_legal), ~apart_from(state.values[: factors.width]))


def audit(world: World, samples: Sampled, key: Key[Array, ""], draws: int = 4, batch: int = 64) -> Audit:
    """Check the graphs of the sampled transitions. Every event type gets its report."""
    keys = jax.random.split(key, draws)
    tried = interventions(world, samples)

    @jax.jit
    def check(states: WorldState, actions: Int[Array, " env"]) -> tuple[Changes, Array]:
        found = jax.vmap(lambda state, action: changes(world, keys, tried, state, action))(states, actions)
        # The graph of the same transition: all random draws together.
        graphs = jax.vmap(
            lambda state, action: jnp.any(jax.vmap(lambda k: world.step(k, state, action)[1].graph)(keys), axis=0)
        )(states, actions)
        return found, graphs

    total = len(samples.actions)
    padded = np.arange(-(-total // batch) * batch) % total
    parts = []
    for start in range(0, len(padded), batch):
        index = padded[start : start + batch]
        part = jax.tree.map(lambda leaf, index=index: leaf[index], samples.states)
        parts.append(jax.device_get(check(part, jnp.asarray(samples.actions[index]))))
    found, graphs = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:total], *parts)
    types = tuple(dict.fromkeys(event_type(event) for event in world.book.events))
    reports = tuple(_report(world, samples, graphs, found, one) for one in types)
    return Audit(world, samples, graphs, found, reports)


def _report(world: World, samples: Sampled, graphs: np.ndarray, found: Changes, type_name: str) -> EventReport:
    """The report of one event type, over all its events."""
    book = world.book
    n = world.factors.num_variables
    members = [k for k, event in enumerate(book.events) if event_type(event) == type_name]
    claims = np.zeros((len(samples.actions), n, n + 1), bool)
    for k in members:
        claims |= samples.events[:, k, None, None] & book.edges[book.events[k]]
    written: Bool[np.ndarray, "sample dst"] = np.any(claims, axis=2)
    changed = np.asarray(found.by_any)
    omitted = np.asarray(found.by_legal) & ~graphs & written[:, :, None] & ~np.eye(n, n + 1, dtype=bool)
    never = claims.any(axis=0) & ~(claims & changed).any(axis=0)
    names = (*world.factors.variable_names, ACTION)
    return EventReport(
        event=type_name,
        transitions=int(samples.events[:, members].any(axis=1).sum()),
        claimed=int(claims.sum()),
        confirmed=int((claims & changed).sum()),
        confirmed_legal=int((claims & np.asarray(found.by_legal)).sum()),
        never_confirmed=tuple((names[d], names[s]) for d, s in np.argwhere(never)),
        omitted={(names[d], names[s]): int(omitted[:, d, s].sum()) for d, s in np.argwhere(omitted.any(axis=0))},
        written={names[d]: int(written[:, d].sum()) for d in np.flatnonzero(np.any(written, axis=0))},
    )


def reason(audit: Audit, sample: int, child: str, parent: str) -> str:
    """Why a claim stayed unconfirmed: one of five known reasons, or "unexplained".

    *goTo is kept whole*: the pose after a goTo is labelled as a block, though at times every place of the target would
    have given the same x, or the same y. *The way back is blocked too*: the agent was blocked, and the only other
    direction along that axis is blocked as well. *Blocked twice over*: furniture with an item on it was in the way;
    the furniture is named, but had it been elsewhere the item would have blocked. *A barrier from wall to wall*: from
    every other row (or column) the agent would have been blocked as well. *Written as it was*: in kitchen butter comes
    into the pot as straight as the pot onto the stove, so it lies there as before when it has melted, and the hand is
    mostly above the switch already when it toggles it.
    """
    world = audit.world
    names = world.factors.source_names("variable")
    edge = (names.index(child), names.index(parent))
    fired = [event for event, on in zip(world.book.events, audit.samples.events[sample], strict=True) if on]
    types = {event_type(event) for event in fired if world.book.edges[event][edge]}
    if "goto" in types:
        return "goTo is kept whole"
    if "blocked" in types and isinstance(world, RoomWorld | Minecraft):
        view = world.unpack(audit.samples.states.values[sample])
        return _why_blocked(world, view, int(audit.samples.actions[sample]), parent)
    if isinstance(world, Kitchen) and bool(audit.changes.none[sample, edge[0]]):
        return "written as it was"
    return "unexplained"


def _why_blocked(world: RoomWorld | Minecraft, view: View, action: int, parent: str) -> str:
    pose = world.pose(view)
    dx, dy = world.compass[int(pose.dir) if isinstance(world, RoomWorld) else action]
    if parent in ("agent.dir", ACTION) and not bool(world.free(view, Cell(pose.x - dx, pose.y - dy))):
        return "the way back is blocked too"
    front = Cell(pose.x + dx, pose.y + dy)
    across = "agent.y" if dx else "agent.x"
    if parent == across:
        others = [Cell(front.x, int32(k)) if dx else Cell(int32(k), front.y) for k in range(world.size)]
        if not any(bool(world.free(view, cell)) for cell in others):
            return "a barrier from wall to wall"
    if isinstance(world, RoomWorld) and sum(bool(covers(rect, front)) for rect in world.obstacles(view)) > 1:
        return "blocked twice over"
    return "unexplained"


def table(reports: Sequence[EventReport]) -> list[dict[str, str | int | float]]:
    """The reports as rows for a table or a file."""
    rows: list[dict[str, str | int | float]] = []
    for report in reports:
        share = report.confirmed / report.claimed if report.claimed else 1.0
        rows.append(
            {
                "event": report.event,
                "transitions": report.transitions,
                "claimed": report.claimed,
                "confirmed": report.confirmed,
                "confirmed_share": round(share, 4),
                "confirmed_by_legal_state": report.confirmed_legal,
                "never_confirmed": "; ".join(f"{child} <- {parent}" for child, parent in report.never_confirmed),
                "omitted": sum(report.omitted.values()),
                "omitted_parents": ", ".join(sorted({parent for _, parent in report.omitted})),
            }
        )
    return rows
