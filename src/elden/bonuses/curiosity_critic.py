"""Curiosity-Critic (Bhaskara & Wang 2026): the error of the prediction beyond what no learning would take away."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from elden.bonuses.base import Metrics
from elden.bonuses.episodes import reward_of_items
from elden.bonuses.fitted import FitConfig, Fitted
from elden.bonuses.model_based import GateConfig, ModelBonus, ModelState
from elden.nn import Mlp
from elden.pytree import pytree
from elden.transitions import Steps, Transitions

_Lesson: TypeAlias = tuple[Transitions, Float[Array, "step child"]]


@pytree()
@dataclass(frozen=True)
class CuriosityCriticState:
    """The dynamics models, and the critic, a network that predicts their errors."""

    model: ModelState
    critic: Fitted[Mlp]


@dataclass(frozen=True)
class CuriosityCritic:
    """`max(e_j − ê_j(s, a), 0)`, averaged over children j, with e the error of the prediction, ê the critic's floor.

    The critic learns what the error of a step is once the models have learnt from it: little where the step can be
    learnt, much where it is random. Before it has learnt anything its floor is 0, and the reward is that of
    curiosity.

    As in the authors' program the critic is a small MLP with a squared loss, the floor is no less than 0, and no reward
    is negative. What differs: their critic gives one number for a state and learns at every step, just before it is
    read; this one gives a number for each child of `(s, a)`, so that gates apply, and learns after each rollout.
    """

    name: ClassVar[str] = "curiosity-critic"

    curiosity: ModelBonus
    """Its signal is `Curiosity`: the error of the prediction of each child."""
    config: FitConfig = field(default_factory=FitConfig)

    def init(self, key: Key[Array, ""], num_envs: int) -> CuriosityCriticState:
        """Untrained models, and a critic that expects no error."""
        keys = jax.random.split(key)
        space, children = self.curiosity.space, self.curiosity.layout.num_children
        sizes = (space.factors.encoded_width + space.action.encoded_size, *self.config.hidden, children)
        critic = Mlp.init(keys[1], sizes, "relu", last_scale=0.0)
        return CuriosityCriticState(self.curiosity.init(keys[0], num_envs), Fitted.init(self.config, critic))

    def models_in(self, state: CuriosityCriticState) -> tuple[ModelBonus, ModelState]:
        """Those of curiosity."""
        return self.curiosity, state.model

    def _predicted(self, critic: Mlp, seen: Transitions) -> Float[Array, "step child"]:
        return critic(self.curiosity.space.one_hot(seen))

    def floors(self, state: CuriosityCriticState, seen: Transitions) -> Float[Array, "step child"]:
        """The error of each child that is expected to remain."""
        return jnp.maximum(self._predicted(state.critic.parameters, seen), 0.0)

    def reward(
        self, state: CuriosityCriticState, steps: Steps
    ) -> tuple[CuriosityCriticState, Float[Array, "time env"], Metrics]:
        """Mean over children of how far each error is above its floor."""
        seen, memory = steps.transitions(), state.model.memory
        errors, metrics = self.curiosity.item_rewards(state.model, seen)
        floors = self.floors(state, seen)
        # The error of a closed child is 0, and so is then its reward.
        items = jnp.maximum(errors[..., 0] - floors, 0.0).reshape(*steps.done.shape, -1)
        episodes, rewards, more = reward_of_items(items, steps.done, memory.episodes, self.curiosity.once)
        model = replace(state.model, memory=replace(memory, episodes=episodes))
        return replace(state, model=model), rewards, metrics | more | {"bonus/floor": jnp.mean(floors)}

    def update(
        self, state: CuriosityCriticState, key: Key[Array, ""], steps: Steps
    ) -> tuple[CuriosityCriticState, Metrics]:
        """Train the models, then the critic on the errors that they still make in these steps, whatever the gate."""
        keys = jax.random.split(key)
        model, metrics = self.curiosity.update(state.model, keys[0], steps)
        seen = steps.transitions()
        remaining, _ = replace(self.curiosity, gate=GateConfig("none")).item_rewards(model, seen)

        def loss(critic: Mlp, lesson: _Lesson) -> Float[Array, ""]:
            some, errors = lesson
            return jnp.mean((self._predicted(critic, some) - errors) ** 2)

        lessons = (seen, remaining[..., 0])
        critic, mean = state.critic.fit_on(self.config, loss, keys[1], lessons, jnp.int32(seen.obs.shape[0]))
        return CuriosityCriticState(model, critic), metrics | {"bonus/loss": mean}
