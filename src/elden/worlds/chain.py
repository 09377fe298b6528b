"""Chain: links that must be switched on one after the other, among distractors. For tests and scaling curves."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num, UInt32

from elden.factors import ACTION, Continuous, Discrete, Entity, Factors, Variable
from elden.worlds.base import Named, View, World, WorldOptionError
from elden.worlds.grid import Flag, Scalar, int32
from elden.worlds.labels import Fired, Rule, RuleBook
from elden.worlds.scene import Scene, Sprite

_SEED = 61
"""Of the rules of intricate entities: part of the world's definition, not of an experiment."""
_MOST_STATES = 100_000
_MOST_STATES_IN_ALL = 1_000_000
_CANDIDATES = 64
"""How many neighbours of a path's end `jump_table` looks at before it turns the path."""
_FINE = 1 << 24
"""Steps of the unit interval in which continuous intricate variables are counted: float32 holds each exactly."""
_TOLERANCE = 1e-4


def _neighbours(digits: Int[np.ndarray, " var"], values: int, rng: np.random.Generator) -> Int[np.ndarray, " some"]:
    """Random states that differ from this one in every variable."""
    shifts = rng.integers(1, values, size=(_CANDIDATES, len(digits)))
    states: Int[np.ndarray, " some"] = (digits + shifts) % values @ values ** np.arange(len(digits))
    return states


@lru_cache(maxsize=1024)
def jump_table(entity: int, values: int, variables: int) -> Int[np.ndarray, " state"]:
    """The state after each joint state of an intricate entity: one cycle through all of them, random but fixed.

    State `sum_i v_i * values**i` stands for the variables `v_i`. Every jump changes every variable. The cycle is a
    Hamiltonian one of the graph that joins such states, found by Pósa's rotations: a path grows from its end to a
    random unvisited neighbour; where none is seen, the part behind a random neighbour is turned over, which gives
    the path another end.
    """
    rng = np.random.default_rng((_SEED, entity))
    num_states = values**variables
    digits = np.arange(num_states)[:, None] // values ** np.arange(variables) % values
    path, place = np.zeros(num_states, np.int64), np.full(num_states, -1)
    place[0], length = 0, 1
    while length < num_states or np.any(digits[path[-1]] == digits[path[0]]):
        near = _neighbours(digits[path[length - 1]], values, rng)
        unvisited = near[place[near] < 0]
        if len(unvisited):
            path[length], place[unvisited[0]] = unvisited[0], length
            length += 1
        else:
            behind = place[near[0]] + 1
            path[behind:length] = path[behind:length][::-1].copy()
            place[path[behind:length]] = np.arange(behind, length)
    following = np.zeros(num_states, np.int32)
    following[path] = np.roll(path, -1)
    following.setflags(write=False)
    return following


@lru_cache(maxsize=1024)
def shear_constants(entity: int, variables: int) -> tuple[UInt32[np.ndarray, "var var"], UInt32[np.ndarray, " var"]]:
    """The slopes m (odd, from 11 to 41; 0 on the diagonal) and offsets c of `sheared` for one intricate entity."""
    rng = np.random.default_rng((_SEED, entity))
    slopes = 2 * rng.integers(5, 21, size=(variables, variables)) + 1
    np.fill_diagonal(slopes, 0)
    return slopes.astype(np.uint32), rng.integers(0, _FINE, size=variables).astype(np.uint32)


def sheared(
    row: Float[Array, " var"], slopes: UInt32[Array, "var var"], offsets: UInt32[Array, " var"]
) -> Float[Array, " var"]:
    """The variables of a continuous intricate entity after a touch.

    One variable after the other, each seeing the new values of those before it:

        v_i <- frac(v_i + 1/8 + 3/4 frac(sum_{j != i} m_ij v_j + c_i))

    Every variable moves by at least 1/8. Slopes are steep, so near states part within a few touches. All is done in
    whole numbers of 2^-24: each shear is a bijection of these, so nothing ever gathers or rounds to a fixed point.
    """
    columns = list(jnp.round(row * _FINE).astype(jnp.uint32))
    for i in range(len(columns)):
        mixed = sum((slopes[i, j] * column for j, column in enumerate(columns)), offsets[i])
        shift = _FINE // 8 + (3 * (mixed % _FINE)) // 4
        columns[i] = (columns[i] + shift) % _FINE
    return jnp.stack(columns).astype(jnp.float32) / _FINE


@dataclass(frozen=True)
class Chain(World):
    """A chain of links, each of which works only once the one before it is on, and distractors around it.

    *State.* agent (at: 0 nowhere, k the k-th of the other entities), link0.. (level: 0..levels-1, on at the top),
    inert0.. (value), noisy0.. (value), intricate0.. (v0, v1, ...). An episode starts with the agent nowhere, all
    links at 0 and distractors uniformly at random.

    *Actions.* goto_<entity> for every entity but the agent, then touch. goTo always arrives. Touch raises the link
    that the agent is at by one level if the link before it is on (link0: always) and it is not at the top. Touching
    an *inert* or a *noisy* entity does nothing: the value of an inert one never changes, that of a noisy one is drawn
    again at every step, uniformly, whatever one does. Touching an *intricate* one makes all its variables jump to the
    next state of one cycle through all their joint states. The cycle is fixed, each entity has its own, every jump
    changes every variable, and apart from that the cycle is random: that it reacts is seen at once, how is a table to
    be learnt by heart (`jump_table`).

    *Restless variant.* A link below its top never rests: at each level it runs through `restless` values, one after the
    other, at every step. A touch raises it from any of them to the first of the next level; on, it rests at
    (levels - 1) * restless. So that a link changes says nothing here; that it does not do what it always does says all.

    *Continuous variant.* All variables lie in [0, 1]: `at` and `level` are divided by their largest value, inert and
    noisy values are uniform reals, and a touched intricate entity makes a step of a chaotic map (`sheared`).

    *Success.* The last link is on. Stages: link k is on, for every k. The shortest solution takes depth * levels
    steps (`shortest`).

    *Local graph.* A goTo elsewhere: agent.at depends on the action alone. A touch that raises link k: its level on the
    action, agent.at, the level of link k-1 and itself. A touch of an intricate entity: each of its variables on the
    action, agent.at and all of its variables. A noisy value depends on nothing. Else everything depends on itself
    alone. Where a mechanism is at work these are exactly the variables that make a difference, with two exceptions: a
    link of two levels keeps its diagonal entry, though it comes on whatever it was; and with few values the table of
    an intricate entity may happen to give a variable the same next value whatever another one is.
    """

    name: ClassVar[str] = "chain"
    limits: ClassVar[Mapping[str, int]] = {
        **World.limits,
        **dict.fromkeys(("depth", "restless", "inert", "noisy"), 100),
        **dict.fromkeys(("levels", "values", "intricate", "intricate_variables"), 1000),
    }
    max_steps: int = 50
    """Length of an episode. The shortest solution takes depth * levels steps: give long chains more."""
    depth: int = 4
    """How many links must be switched on."""
    levels: int = 2
    """Levels of a link; it is on at the highest, after levels - 1 touches."""
    restless: int = 1
    """Values that a link runs through by itself at each level below the top, one after the other; with 1 it rests."""
    inert: int = 1
    """How many distractors never change."""
    noisy: int = 1
    """How many distractors change at random, whatever one does."""
    intricate: int = 1
    """How many distractors react to touch by a fixed rule that is very hard to learn."""
    values: int = 10
    """Values of a distractor's variable (the continuous variant has no use for it)."""
    intricate_variables: int = 3
    """Variables of an intricate distractor."""
    continuous: bool = False
    """Make every variable a real number in [0, 1]."""

    def _check_options(self) -> None:
        if self.labels == "authors":
            raise WorldOptionError("labels='authors' given, but chain is our own world: there is only 'fix'")
        super()._check_options()
        least = {"depth": 1, "levels": 2, "restless": 1, "inert": 0, "noisy": 0, "intricate": 0, "values": 2}
        least["intricate_variables"] = 1
        for option, bound in least.items():
            given = getattr(self, option)
            if given < bound:
                raise WorldOptionError(f"{option}={given} given; chain needs at least {bound}")
        if self.continuous and self.values != type(self).values:
            raise WorldOptionError(f"values={self.values} given; continuous=True has reals, not a number of values")
        if self.intricate:
            self._check_intricate()

    def _check_intricate(self) -> None:
        if self.continuous:
            if self.intricate_variables < 2:
                raise WorldOptionError(
                    "intricate_variables=1 given; a continuous intricate entity needs at least 2, "
                    "for its variables move each other"
                )
            return
        if self.values < 3:
            raise WorldOptionError(
                f"values={self.values} given; with intricate entities there must be at least 3, "
                "or no cycle through all states changes every variable at every touch (or give intricate=0)"
            )
        most = min(_MOST_STATES, _MOST_STATES_IN_ALL // self.intricate)
        # The exponent is bounded first: a careless number of variables would make a power of astronomical size.
        if self.intricate_variables > 16 or self.values**self.intricate_variables > most:
            raise WorldOptionError(
                f"values={self.values}, intricate_variables={self.intricate_variables}, intricate={self.intricate} "
                f"given; values ** intricate_variables must not exceed {_MOST_STATES}, nor {_MOST_STATES_IN_ALL} "
                "summed over the intricate entities, or the tables of their rules become too large"
            )

    # Who is there.

    @cached_property
    def links(self) -> tuple[str, ...]:
        """The links, in the order in which they must be switched on."""
        return tuple(f"link{k}" for k in range(self.depth))

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Every entity but the agent; `agent.at` counts them from 1."""
        inert = (f"inert{k}" for k in range(self.inert))
        noisy = (f"noisy{k}" for k in range(self.noisy))
        intricate = (f"intricate{k}" for k in range(self.intricate))
        return (*self.links, *inert, *noisy, *intricate)

    @property
    def top(self) -> int:
        """The value of a link that is on."""
        return (self.levels - 1) * self.restless

    @property
    def shortest(self) -> int:
        """Steps of the shortest solution from the start: for every link a goTo and levels - 1 touches."""
        return self.depth * self.levels

    @cached_property
    def factors(self) -> Factors:
        """The agent, the links and the distractors."""
        sizes = {"agent": {"at": len(self.others) + 1}} | {link: {"level": self.top + 1} for link in self.links}
        for name in self.others[self.depth :]:
            intricate = name.startswith("intricate")
            variables = [f"v{i}" for i in range(self.intricate_variables)] if intricate else ["value"]
            sizes[name] = dict.fromkeys(variables, self.values)
        entities = []
        for name, variables_of in sizes.items():
            kinds = {v: Continuous(1, 0.0, 1.0) if self.continuous else Discrete(n) for v, n in variables_of.items()}
            entities.append(Entity(name, tuple(Variable(v, kind) for v, kind in kinds.items())))
        return Factors(tuple(entities))

    @cached_property
    def action_names(self) -> tuple[str, ...]:
        """The actions."""
        return (*(f"goto_{name}" for name in self.others), "touch")

    @cached_property
    def stage_names(self) -> tuple[str, ...]:
        """The stages."""
        return tuple(f"{link} on" for link in self.links)

    def _variables(self, kind: str) -> list[str]:
        """The variables of all entities of a kind, in graph order."""
        return [name for name in self.factors.variable_names if name.startswith(kind)]

    # Variables and what they stand for.

    def _gather(self, view: View, kind: str) -> Num[Array, " some"]:
        """The variables of all entities of a kind, as one array."""
        parts = [view[name] for name in self._variables(kind)]
        return jnp.stack(parts) if parts else jnp.zeros((0,), self.factors.dtype)

    def _count(self, shown: Num[Array, "..."], most: int) -> Int[Array, "..."]:
        """The whole number, from 0 to `most`, that a variable stands for."""
        return jnp.round(shown * most).astype(jnp.int32) if self.continuous else shown

    def _shown(self, count: Int[Array, "..."], most: int) -> Num[Array, "..."]:
        """The inverse of `_count`; looked up, for a division may be rounded differently by each device."""
        return jnp.asarray(np.arange(most + 1) / most, jnp.float32)[count] if self.continuous else count

    def _at(self, view: View) -> Scalar:
        return self._count(view["agent.at"], len(self.others))

    def _on(self, view: View) -> Bool[Array, " link"]:
        return self._count(self._gather(view, "link"), self.top) == self.top

    def _random(self, key: Key[Array, ""], kind: str) -> View:
        """Fresh uniform values for all entities of a kind."""
        names = self._variables(kind)
        if self.continuous:
            drawn = jax.random.uniform(key, (len(names),), jnp.float32)
        else:
            drawn = jax.random.randint(key, (len(names),), 0, self.values, jnp.int32)
        return dict(zip(names, drawn, strict=True))

    # Reset and step.

    def _draw(self, key: Key[Array, ""]) -> tuple[View, Flag]:
        keys = jax.random.split(key, 3)
        view = {name: jnp.zeros((), self.factors.dtype) for name in self.factors.variable_names}
        for kind_key, kind in zip(keys, ("inert", "noisy", "intricate"), strict=True):
            view |= self._random(kind_key, kind)
        return view, jnp.asarray(True)

    def _advance(self, key: Key[Array, ""], view: View, action: Scalar) -> tuple[View, Fired]:
        count = len(self.others)
        at = self._at(view)
        to = jnp.where(action < count, action + 1, at)
        numbers = int32(np.arange(1, count + 1))
        went = (to != at) & (to == numbers)
        touched = (action == count) & (at == numbers)
        after = view | {"agent.at": jnp.where(to != at, self._shown(to, count), view["agent.at"])}
        raised, links = self._raise(view, touched[: self.depth])
        reacting = touched[count - self.intricate :]
        after |= links | self._react(view, reacting) | self._random(key, "noisy")
        events = {f"goto:{name}": flag for name, flag in zip(self.others, went, strict=True)}
        events |= {f"touch:{name}": flag for name, flag in zip(self.links, raised, strict=True)}
        events |= {f"touch:intricate{k}": flag for k, flag in enumerate(reacting)}
        events |= {f"noise:noisy{k}": jnp.asarray(True) for k in range(self.noisy)}
        return after, events

    def _raise(self, view: View, touched: Bool[Array, " link"]) -> tuple[Bool[Array, " link"], View]:
        """Which link a touch raises, and the levels after it."""
        top, pace = self.top, self.restless
        shown = self._gather(view, "link")
        level = self._count(shown, top)
        ready = jnp.concatenate([jnp.ones((1,), bool), level[:-1] == top])
        raised = touched & ready & (level < top)
        lowest = level // pace * pace
        by_itself = jnp.where(level < top, lowest + (level - lowest + 1) % pace, level)
        moved = jnp.where(raised, lowest + pace, by_itself)
        after = jnp.where(moved == level, shown, self._shown(moved, top))
        return raised, dict(zip(self._variables("link"), after, strict=True))

    def _react(self, view: View, touched: Bool[Array, " entity"]) -> View:
        """The intricate entities: at most one is touched, so the rule is worked out for that one alone."""
        if not self.intricate:
            return {}
        rows = self._gather(view, "intricate").reshape(self.intricate, self.intricate_variables)
        which = jnp.argmax(touched)
        row = jnp.sum(jnp.where(touched[:, None], rows, 0), axis=0, dtype=rows.dtype)
        if self.continuous:
            slopes, offsets = self._shears
            new = sheared(row, slopes[which], offsets[which])
        else:
            weights = int32(self.values ** np.arange(self.intricate_variables))
            state = self._jumps[which, jnp.sum(row * weights, dtype=jnp.int32)]
            new = state // weights % self.values
        after = jnp.where(touched[:, None], new, rows).reshape(-1)
        return dict(zip(self._variables("intricate"), after, strict=True))

    @property
    def _jumps(self) -> Int[Array, "entity state"]:
        entities = range(self.intricate)
        return int32(np.stack([jump_table(k, self.values, self.intricate_variables) for k in entities]))

    @property
    def _shears(self) -> tuple[UInt32[Array, "entity var var"], UInt32[Array, "entity var"]]:
        constants = [shear_constants(k, self.intricate_variables) for k in range(self.intricate)]
        slopes, offsets = zip(*constants, strict=True)
        return jnp.asarray(np.stack(slopes)), jnp.asarray(np.stack(offsets))

    def _goal(self, view: View) -> Flag:
        return self._on(view)[-1]

    def _stages(self, view: View, fired: Fired | None) -> list[Flag]:
        return list(self._on(view))

    def _solvable(self, view: View) -> Flag:
        return jnp.asarray(True)

    @cached_property
    def book(self) -> RuleBook:
        """The rules of the true local graph."""
        rules = [Rule(f"goto:{name}", ("agent.at",), (ACTION,), cuts_self=True) for name in self.others]
        for k, level in enumerate(self._variables("link")):
            before = (f"link{k - 1}.level",) if k else ()
            rules.append(Rule(f"touch:link{k}", (level,), (ACTION, "agent.at", *before)))
        for k in range(self.intricate):
            own = tuple(self._variables(f"intricate{k}."))
            rules.append(Rule(f"touch:intricate{k}", own, (ACTION, "agent.at", *own)))
        rules += [Rule(f"noise:noisy{k}", (f"noisy{k}.value",), (), cuts_self=True) for k in range(self.noisy)]
        return RuleBook(self.factors, tuple(rules))

    def _violations(self, view: View) -> dict[str, Flag]:
        """Every state in range is possible, but reals that stand for whole numbers must be near one of these."""
        if not self.continuous:
            return {}
        counted = {"agent.at": len(self.others)} | dict.fromkeys(self._variables("link"), self.top)
        broken = {}
        for name, most in counted.items():
            gap = jnp.abs(view[name] - self._shown(self._count(view[name], most), most))
            broken[f"{name} is not a multiple of 1/{most}"] = gap > _TOLERANCE
        return broken

    def _script(self, key: Key[Array, ""], view: View) -> Scalar:
        """Work along the chain; then go round the distractors (links, if there are none) and touch now and then."""
        at, on = self._at(view), self._on(view)
        touch = self.action("touch")
        # Behind the last link that is on, not at the first that is off: a given state may have gaps.
        target = jnp.max(jnp.where(on, int32(np.arange(1, self.depth + 1)), 0)) + 1
        work = jnp.where(at == target, touch, target - 1)
        first = self.depth + 1 if len(self.others) > self.depth else 1
        following = jnp.where(at < first, first, first + (at - first + 1) % (len(self.others) + 1 - first))
        lingers = (at >= first) & jax.random.bernoulli(key)
        return jnp.where(on[-1], jnp.where(lingers, touch, following - 1), work)

    # Pictures.

    def _scene(self, named: Named) -> Scene:
        """Links in rows, then distractors; a free row under each for the agent, a free column for when it is nowhere.

        Reals are shown in tenths.
        """
        columns = max(6, round((2 * len(self.others)) ** 0.5))
        link_rows = -(-self.depth // columns)
        sprites = []
        for k, name in enumerate(self.others):
            row, column = divmod(k, columns) if k < self.depth else divmod(k - self.depth, columns)
            y = 2 * (row if k < self.depth else row + link_rows)
            kind = name.rstrip("0123456789")
            sprites.append(Sprite(kind, column + 1, y, look=self._look(named, name), label=f"#{name[len(kind) :]}"))
        width, height = max(sprite.x for sprite in sprites) + 1, sprites[-1].y + 2
        at = self._whole(named["agent"]["at"], len(self.others))
        spot = (sprites[at - 1].x, sprites[at - 1].y + 1, 3) if at else (0, height - 1, 3)
        on = sum(sprite.look.get("level", -1) == sprite.look.get("levels") for sprite in sprites)
        status = (("links on", f"{on}/{self.depth}"), ("agent at", self.others[at - 1] if at else "nowhere"))
        return Scene(width, height, tuple(sprites), spot, status=status, walls=False)

    def _look(self, named: Named, name: str) -> dict[str, int]:
        if name in self.links:
            return {"level": self._whole(named[name]["level"], self.top) // self.restless, "levels": self.levels - 1}
        numbers = [float(np.asarray(value)) for value in named[name].values()]
        digits = [min(9, int(10 * number)) if self.continuous else int(number) for number in numbers]
        return {"value" if i == 0 else f"value{i + 1}": digit for i, digit in enumerate(digits)}

    def _whole(self, shown: object, most: int) -> int:
        """`_count` on the host."""
        return round(float(np.asarray(shown)) * (most if self.continuous else 1))
