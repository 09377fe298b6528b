"""Dependency surprise: curiosity about which edges a local graph will have, rather than about what values will follow.

An ensemble of small networks predicts from `(s, a)` every edge of the local graph. The graph that it is compared with
is read in hindsight, from `(s, a, s')` by the dynamics models. The reward is the error of the dependencies
identified, the paper's own ideal, instead of the variance that stands in for it there: the first time that a new link
fires no member has the edge, so the variance is 0 and the error is large. Rewards are read by the models as they are
when the step is rewarded; what the networks learn is read again after the models have learnt from the step.

Only what changed has parents to be asked about. Where something changed and the models see no parent but itself, a
further bit, *unexplained*, stands for the parents that are not known yet. The first time that a link fires it is this
bit that is rewarded, with sources permuted too. `unexplained=False` leaves only edges.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from elden.bonuses.base import Metrics
from elden.bonuses.ensemble import chunked
from elden.bonuses.episodes import Episodes, reward_of_items
from elden.bonuses.model_based import ModelBonus, ModelState
from elden.bonuses.whether import Whether, WhetherConfig, WhetherState, check_once
from elden.graphs.base import Detector, changed
from elden.graphs.reader import Reader
from elden.pytree import pytree
from elden.transitions import Steps, Transitions


@dataclass(frozen=True)
class DependencyConfig:
    """Whether edges are there, as a bonus."""

    whether: WhetherConfig = field(default_factory=WhetherConfig)
    """The networks that predict edges."""
    once: bool = True
    """Reward an edge only once in an episode."""
    unexplained: bool = True
    """Ask as well whether something will change without a parent that the models see."""
    permuted: bool = False
    """A control: the sources of every graph are permuted at random, so that only their number says anything."""

    def __post_init__(self) -> None:
        if self.once:
            check_once(self.whether)


@pytree()
@dataclass(frozen=True)
class DependencyState:
    """The dynamics models that graphs are read from, and the networks that predict these graphs."""

    model: ModelState
    whether: WhetherState
    episodes: Episodes


@dataclass(frozen=True)
class DependencySurprise:
    """Mean over edges of `1(−log P(g) − H(P) > 3 nats)`, with g whether the edge is in the graph seen in hindsight."""

    name: ClassVar[str] = "dependency-surprise"

    consensus: ModelBonus
    """Its signal is `Consensus`: what share of an ensemble's members sees each edge."""
    config: DependencyConfig = field(default_factory=DependencyConfig)

    @property
    def _shape(self) -> tuple[int, int]:
        layout = self.consensus.layout
        return layout.num_children, self.consensus.signal.items(layout) + 1

    @property
    def networks(self) -> Whether:
        """What predicts edges."""
        children, sources = self._shape
        return Whether(self.consensus.space, children * sources, self.config.whether)

    def init(self, key: Key[Array, ""], num_envs: int) -> DependencyState:
        """Untrained models and networks."""
        keys = jax.random.split(key)
        episodes = Episodes.init(num_envs, self.networks.bits)
        return DependencyState(self.consensus.init(keys[0], num_envs), self.networks.init(keys[1]), episodes)

    def models_in(self, state: DependencyState) -> tuple[ModelBonus, ModelState]:
        """Those that graphs are read from."""
        return self.consensus, state.model

    def hindsight(self, state: ModelState, seen: Transitions) -> tuple[Bool[Array, "step bit"], Metrics]:
        """The edges into what changed from anything else, and a bit for each change that has no such edge."""
        share, metrics = self.consensus.item_rewards(state, seen)
        change = self._changed(state, seen)
        detector: Detector = self.consensus.signal.detector  # type: ignore[attr-defined]
        other = Reader(self.consensus.layout, detector).edge_mask
        edges = (share > 0.5) & other & change[..., None]
        if self.config.permuted:
            order = jax.random.uniform(jax.random.key(0), edges.shape)
            edges = jnp.take_along_axis(edges, jnp.argsort(order, axis=-1), axis=-1)
        unexplained = change & ~edges.any(-1)
        metrics["graph/unexplained"] = jnp.mean(unexplained.astype(jnp.float32))
        bits = jnp.concatenate([edges, (unexplained & self.config.unexplained)[..., None]], axis=-1)
        return bits.reshape(bits.shape[0], -1), metrics

    def _changed(self, state: ModelState, seen: Transitions) -> Bool[Array, "step child"]:
        ensemble, number = self.consensus.ensemble, seen.obs.shape[0]
        reference = ensemble.reference(state.ensemble)
        pieces = chunked(number, min(ensemble.config.chunk, number))
        parts = jax.lax.map(lambda piece: changed(ensemble.layout, ensemble.encode(seen[piece]), reference), pieces)
        whole: Bool[Array, "step child"] = parts.reshape(-1, parts.shape[-1])[:number]
        return whole

    def reward(self, state: DependencyState, steps: Steps) -> tuple[DependencyState, Float[Array, "time env"], Metrics]:
        """Mean over the questions of the reward of each answer."""
        seen = steps.transitions()
        bits, metrics = self.hindsight(state.model, seen)
        items = self.networks.rewards(state.whether, seen, bits).reshape(*steps.done.shape, -1)
        episodes, rewards, more = reward_of_items(items, steps.done, state.episodes, self.config.once)
        return replace(state, episodes=episodes), rewards, metrics | more

    def update(self, state: DependencyState, key: Key[Array, ""], steps: Steps) -> tuple[DependencyState, Metrics]:
        """Train the dynamics models, then learn the graphs that they now see."""
        keys, seen = jax.random.split(key), steps.transitions()
        model, metrics = self.consensus.update(state.model, keys[0], steps)
        bits, _ = self.hindsight(model, seen)
        whether, more = self.networks.update(state.whether, keys[1], seen, bits)
        return replace(state, model=model, whether=whether), metrics | more


@pytree()
@dataclass(frozen=True)
class EdgeCountState:
    """The dynamics models, and in how many episodes each edge was there.

    Attributes:
        model: The models.
        counts: Episodes with each edge.
        rewarded: Edges that were rewarded in the episodes under way.
        counted: Edges that were counted in them.
    """

    model: ModelState
    counts: Int[Array, "*run bit"]
    rewarded: Episodes
    counted: Episodes


@dataclass(frozen=True)
class EdgeCount:
    """Mean over children of the rarest edge into them, `max_i g_ij N_ij^-1/2`, each edge once in an episode.

    g is the local graph as `DependencySurprise` reads it in hindsight, N_ij the number of episodes that had the edge.
    """

    name: ClassVar[str] = "edge-count"

    reader: DependencySurprise
    """What reads graphs."""

    def init(self, key: Key[Array, ""], num_envs: int) -> EdgeCountState:
        """Nothing counted."""
        bits = self.reader.networks.bits
        nothing = Episodes.init(num_envs, bits)
        return EdgeCountState(self.reader.consensus.init(key, num_envs), jnp.zeros(bits, jnp.int32), nothing, nothing)

    def models_in(self, state: EdgeCountState) -> tuple[ModelBonus, ModelState]:
        """Those that graphs are read from."""
        return self.reader.consensus, state.model

    def reward(self, state: EdgeCountState, steps: Steps) -> tuple[EdgeCountState, Float[Array, "time env"], Metrics]:
        """More for rare edges."""
        bits, metrics = self.reader.hindsight(state.model, steps.transitions())
        rewarded, first = state.rewarded.first(bits.reshape(*steps.done.shape, -1), steps.done)
        items = jnp.where(first, jax.lax.rsqrt(state.counts.astype(jnp.float32) + 1.0), 0.0)
        children = items.reshape(*steps.done.shape, self.reader.consensus.layout.num_children, -1)
        rewards = jnp.mean(jnp.max(children, axis=-1), axis=-1)
        return replace(state, rewarded=rewarded), rewards, metrics | {"bonus/mean": jnp.mean(rewards)}

    def update(self, state: EdgeCountState, key: Key[Array, ""], steps: Steps) -> tuple[EdgeCountState, Metrics]:
        """Count the edges, then train the dynamics models."""
        bits, _ = self.reader.hindsight(state.model, steps.transitions())
        counted, first = state.counted.first(bits.reshape(*steps.done.shape, -1), steps.done)
        counts = state.counts + jnp.sum(first, axis=(0, 1), dtype=jnp.int32)
        model, metrics = self.reader.consensus.update(state.model, key, steps)
        return EdgeCountState(model, counts, state.rewarded, counted), metrics
