"""Algorithm 1: act, pay, learn to act, learn the world. One compiled program, with seeds as a leading axis.

An iteration is a rollout of all environments of all seeds, the bonus for its steps, the policy's update, and the
bonus's own. It is split where it meets the world: `roll` takes the rollout, `digest` does the rest, and does not care
where a rollout comes from: environments of others are rolled on the host (`elden.training.collecting`). Our worlds are
stepped with seeds and environments as one axis, so that layouts are drawn only in steps in which some episode ends;
everything else is vmapped over seeds. What happens in an iteration depends on the state, the seed and the number of the
iteration alone.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Num, Shaped

from elden.agents.actions import Categorical
from elden.agents.gae import advantages
from elden.agents.ppo import ActorCritic, Experience, Ppo, PpoConfig, PpoState
from elden.bonuses import Bonus, Space, Steps, make_bonus
from elden.factors import Discrete
from elden.hosts.world import HostWorld
from elden.pytree import pytree
from elden.training.config import LoopConfig, TrainingConfig
from elden.training.scale import Scale
from elden.worlds.base import World, WorldState

Metrics: TypeAlias = dict[str, Float[Array, "..."]]
BonusState = TypeVar("BonusState")


@pytree()
@dataclass(frozen=True)
class LoopState(Generic[BonusState]):
    """Everything that a training is, between two iterations.

    Attributes:
        worlds: Where the environments are, those of one seed after those of the one before; None where they are on the
            host.
        solvable: Whether the task could be solved from the layout that each episode began with; None likewise.
        policy: The agents.
        bonus: The bonuses' states.
        scale: What bonuses are divided by.
    """

    worlds: WorldState | None
    solvable: Bool[Array, " world"] | None
    policy: PpoState
    bonus: BonusState
    scale: Scale


@pytree()
@dataclass(frozen=True)
class Rollout:
    """What the environments of one seed did.

    Attributes:
        steps: The steps.
        elapsed: How much of the episode was over, before each step and after it.
        log_prob: Logarithm of the probability of each action.
        reward: The task's reward.
        terminated: Whether the step ended the task.
        success: Whether the task has been solved in the episode.
        stages: Which stages have been reached in the episode.
        solvable: Whether the task could be solved in the episode; None where nobody knows.
    """

    steps: Steps
    elapsed: Float[Array, "*seed time env 2"]
    log_prob: Float[Array, "*seed time env"]
    reward: Float[Array, "*seed time env"]
    terminated: Bool[Array, "*seed time env"]
    success: Bool[Array, "*seed time env"]
    stages: Bool[Array, "*seed time env stage"]
    solvable: Bool[Array, "*seed time env"] | None


_Tree = TypeVar("_Tree")


def _where(condition: Bool[Array, ""], one: _Tree, other: _Tree) -> _Tree:
    """One of two trees of the same shapes."""
    chosen: _Tree = jax.tree.map(lambda a, b: a if a is b else jnp.where(condition, a, b), one, other)
    return chosen


_Carry: TypeAlias = tuple[WorldState, Bool[Array, " world"]]


def _solvable(
    world: World, states: WorldState, begun: Bool[Array, " world"], known: Bool[Array, " world"]
) -> Bool[Array, " world"]:
    """Whether the task can be solved in each episode; looked at anew only where one has begun."""

    def look(known: Bool[Array, " world"]) -> Bool[Array, " world"]:
        return jnp.where(begun, jax.vmap(world.solvable)(states), known)

    solvable: Bool[Array, " world"] = jax.lax.cond(jnp.any(begun), look, lambda known: known, known)
    return solvable


@dataclass(frozen=True)
class Loop(Generic[BonusState]):
    """The training of agents in one world with one bonus. Frozen and hashable."""

    world: World | HostWorld
    bonus: Bonus[BonusState]
    ppo: PpoConfig
    config: LoopConfig

    @classmethod
    def of(cls, world: World | HostWorld, config: TrainingConfig) -> "Loop[Any]":
        """The loop of a training."""
        space = Space(world.factors, Discrete(world.num_actions))
        return cls(world, make_bonus(config.bonus_name, space, config.bonus), config.ppo, config.loop)

    @property
    def agent(self) -> Ppo:
        """What learns to act."""
        loop, ppo = self.config, self.ppo
        size = min(ppo.minibatch_size, loop.steps_per_iteration)
        learning = max(1, loop.iterations - loop.warmup_iterations)
        updates = learning * ppo.epochs * (loop.steps_per_iteration // size)
        inputs = self.world.factors.encoded_width + int(loop.see_time)
        return Ppo(ppo, Categorical(self.world.num_actions), inputs, 1 + int(loop.separate_values), updates)

    def init(self, keys: Key[Array, " seed"]) -> LoopState[BonusState]:
        """Untrained agents at the beginning of episodes."""
        loop, world = self.config, self.world

        def one(key: Key[Array, ""]) -> tuple[WorldState | None, PpoState, BonusState, Scale]:
            world_key, policy_key, bonus_key = jax.random.split(jax.random.split(key)[0], 3)
            worlds = world.reset_many(world_key, loop.num_envs) if isinstance(world, World) else None
            return (
                worlds,
                self.agent.init(policy_key),
                self.bonus.init(bonus_key, loop.num_envs),
                Scale.init(loop.num_envs),
            )

        worlds, policy, bonus, scale = jax.vmap(one)(keys)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), worlds)
        solvable = jax.vmap(world.solvable)(flat) if isinstance(world, World) else None
        return LoopState(flat, solvable, policy, bonus, scale)

    def iterate(
        self, state: LoopState[BonusState], keys: Key[Array, " seed"], iteration: Int[Array, ""]
    ) -> tuple[LoopState[BonusState], Metrics]:
        """One iteration of all seeds; metrics have a number for each seed."""
        parts = self.keys_of(keys, iteration)
        worlds, solvable, rollout = self.roll(state, parts[:, 0], self.warm(iteration))
        after, metrics = self.digest(state, parts, iteration, rollout)
        return replace(after, worlds=worlds, solvable=solvable), metrics

    def keys_of(self, keys: Key[Array, " seed"], iteration: Int[Array, ""]) -> Key[Array, "seed 3"]:
        """The keys of an iteration: of its rollout, of the policy's learning and of the bonus's."""
        keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.split(key)[1], iteration))(keys)
        return jax.vmap(lambda key: jax.random.split(key, 3))(keys)

    def warm(self, iteration: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the policy acts and learns already, and bonuses are paid."""
        return iteration >= self.config.warmup_iterations

    def digest(
        self, state: LoopState[BonusState], parts: Key[Array, "seed 3"], iteration: Int[Array, ""], rollout: Rollout
    ) -> tuple[LoopState[BonusState], Metrics]:
        """Pay for a rollout, and learn from it; where the worlds are stays as it was.

        Args:
            state: The state that the rollout began with.
            parts: The keys of the iteration.
            iteration: Its number.
            rollout: What the environments did.
        """
        keys, warm = parts[:, 0], self.warm(iteration)
        paid_bonus, paid_scale, scaled, paid = self.pay(state.bonus, state.scale, rollout.steps)
        # Before that nothing is paid: no item counts as paid, and no reward as one that others are compared with.
        bonus, scale, scaled = _where(
            warm, (paid_bonus, paid_scale, scaled), (state.bonus, state.scale, jnp.zeros_like(scaled))
        )

        def learn(policy: PpoState) -> tuple[PpoState, Metrics]:
            return self.learn(policy, parts[:, 1], rollout, scaled)

        def leave(policy: PpoState) -> tuple[PpoState, Metrics]:
            return policy, {name: jnp.full(keys.shape, jnp.nan, jnp.float32) for name in self.agent.metric_names}

        policy, policy_metrics = jax.lax.cond(warm, learn, leave, state.policy)
        bonus, bonus_metrics = self._taught(bonus, parts[:, 2], rollout.steps, warm)
        metrics = {**jax.vmap(self._told)(rollout), **paid, **policy_metrics, **bonus_metrics}
        metrics["bonus/scaled"] = jnp.mean(scaled, axis=(1, 2))
        return replace(state, policy=policy, bonus=bonus, scale=scale), metrics

    def pay(
        self, bonus: BonusState, scale: Scale, steps: Steps
    ) -> tuple[BonusState, Scale, Float[Array, "seed time env"], Metrics]:
        """The bonus for the steps of a rollout, with the weight that it has in the policy's reward."""
        bonus, intrinsic, metrics = jax.vmap(self.bonus.reward)(bonus, steps)
        scale, scaled = jax.vmap(self._scaled)(scale, intrinsic, steps.done)
        return bonus, scale, scaled, metrics

    def learn(
        self, policy: PpoState, keys: Key[Array, " seed"], rollout: Rollout, scaled: Float[Array, "seed time env"]
    ) -> tuple[PpoState, Metrics]:
        """The policies after they have learnt from a rollout and what was paid for it."""
        experience = jax.vmap(self._experience)(policy.network, rollout, scaled)
        updated: tuple[PpoState, Metrics] = jax.vmap(self.agent.update)(policy, keys, experience)
        return updated

    def teach(self, bonus: BonusState, keys: Key[Array, " seed"], steps: Steps) -> tuple[BonusState, Metrics]:
        """The bonuses after they have learnt from a rollout."""
        updated: tuple[BonusState, Metrics] = jax.vmap(self.bonus.update)(bonus, keys, steps)
        return updated

    def _taught(
        self, bonus: BonusState, keys: Key[Array, " seed"], steps: Steps, warm: Bool[Array, ""]
    ) -> tuple[BonusState, Metrics]:
        """The bonuses after they have learnt from a rollout, if they already do."""

        def learn(bonus: BonusState) -> tuple[BonusState, Metrics]:
            return self.teach(bonus, keys, steps)

        if self.config.learn_in_warmup:
            return learn(bonus)
        said = jax.eval_shape(learn, bonus)[1]

        def leave(bonus: BonusState) -> tuple[BonusState, Metrics]:
            return bonus, {name: jnp.full(what.shape, jnp.nan, what.dtype) for name, what in said.items()}

        taught: tuple[BonusState, Metrics] = jax.lax.cond(warm, learn, leave, bonus)
        return taught

    def inputs(
        self, obs: Num[Array, "*batch width"], elapsed: Float[Array, "*batch"]
    ) -> Float[Array, "*batch feature"]:
        """What the policy reads."""
        encoded = self.world.factors.one_hot(obs)
        return jnp.concatenate([encoded, elapsed[..., None]], axis=-1) if self.config.see_time else encoded

    def roll(
        self, state: LoopState[BonusState], keys: Key[Array, " seed"], warm: Bool[Array, ""]
    ) -> tuple[WorldState, Bool[Array, " world"], Rollout]:
        """A rollout of all seeds."""
        loop, seeds, world = self.config, keys.shape[0], self.world
        if not isinstance(world, World) or state.worlds is None or state.solvable is None:
            raise TypeError(f"{world.name} is rolled on the host, by HostCollector")

        def apart(leaf: Shaped[Array, "world ..."]) -> Shaped[Array, "seed env ..."]:
            return leaf.reshape(seeds, loop.num_envs, *leaf.shape[1:])

        def step(carry: _Carry, time: Int[Array, ""]) -> tuple[_Carry, Rollout]:
            worlds, solvable = carry
            now = self.keys_at(keys, time)
            obs = apart(jax.vmap(world.observe)(worlds))
            elapsed = apart(jax.vmap(world.elapsed_fraction)(worlds))
            action, log_prob = self.act(state.policy.network, now[:, :2], obs, elapsed, warm)
            step_keys, reset_keys = (
                jax.vmap(jax.random.split, in_axes=(0, None))(now[:, i], loop.num_envs).reshape(-1) for i in (2, 3)
            )
            after, transition = world.step_each(step_keys, reset_keys, worlds, action.reshape(-1))
            done = transition.done
            following = _solvable(world, after, done, solvable)
            length = jnp.float32(world.max_steps)
            taken = Rollout(
                steps=Steps(*map(apart, (transition.obs, transition.action, transition.next_obs, done))),
                elapsed=jnp.stack([elapsed, elapsed + 1.0 / length], axis=-1),
                log_prob=log_prob,
                reward=apart(transition.reward),
                terminated=apart(transition.terminated | (done & loop.horizon_ends)),
                success=apart(transition.success),
                stages=apart(transition.stages),
                solvable=apart(solvable),
            )
            return (after, following), taken

        carry, rollout = jax.lax.scan(step, (state.worlds, state.solvable), jnp.arange(loop.rollout, dtype=jnp.int32))
        by_seed: Rollout = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rollout)
        return *carry, by_seed

    def keys_at(self, keys: Key[Array, " seed"], time: Int[Array, ""]) -> Key[Array, "seed 4"]:
        """The keys of one step of a rollout: two for the action, one for the step, one for the next episode."""
        return jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time), 4))(keys)

    def act(
        self,
        networks: ActorCritic,
        keys: Key[Array, "seed 2"],
        obs: Num[Array, "seed env width"],
        elapsed: Float[Array, "seed env"],
        warm: Bool[Array, ""],
    ) -> tuple[Int[Array, "seed env"], Float[Array, "seed env"]]:
        """What all agents do, and the logarithms of their probabilities."""
        acted: tuple[Int[Array, "seed env"], Float[Array, "seed env"]] = jax.vmap(self._act, in_axes=(0, 0, 0, None))(
            networks, keys, self.inputs(obs, elapsed), warm
        )
        return acted

    def _act(
        self,
        network: ActorCritic,
        keys: Key[Array, " 2"],
        inputs: Float[Array, "env feature"],
        warm: Bool[Array, ""],
    ) -> tuple[Int[Array, " env"], Float[Array, " env"]]:
        """What the policy does, or something random before it is warm."""
        action, log_prob = self.agent.act(network, keys[0], inputs)
        other = jax.random.randint(keys[1], action.shape, 0, self.world.num_actions, jnp.int32)
        return jnp.where(warm, action, other), log_prob

    def _scaled(
        self, scale: Scale, rewards: Float[Array, "time env"], done: Bool[Array, "time env"]
    ) -> tuple[Scale, Float[Array, "time env"]]:
        """Bonuses with the weight that they have in the policy's reward."""
        loop = self.config
        if loop.normalise != "none":
            scale, sums = scale.sums(rewards, done, loop.intrinsic_discount)
            scale = scale.see(rewards if loop.normalise == "reward" else sums)
            rewards = rewards / scale.deviation
        return scale, loop.intrinsic_weight * rewards

    def _experience(self, network: ActorCritic, rollout: Rollout, intrinsic: Float[Array, "time env"]) -> Experience:
        """What one seed's policy learns from."""
        loop, gae = self.config, self.ppo.gae
        inputs = self.inputs(rollout.steps.obs, rollout.elapsed[..., 0])
        values = network.values(inputs)
        following = network.values(self.inputs(rollout.steps.next_obs, rollout.elapsed[..., 1]))
        streams = [(rollout.reward, loop.discount), (intrinsic, loop.intrinsic_discount)]
        if not loop.separate_values:
            streams = [(rollout.reward + intrinsic, loop.discount)]
        found = [
            advantages(reward, values[..., i], following[..., i], rollout.terminated, rollout.steps.done, discount, gae)
            for i, (reward, discount) in enumerate(streams)
        ]
        stacked = jnp.stack(found, axis=-1)

        def flat(part: Shaped[Array, "time env ..."]) -> Shaped[Array, "step ..."]:
            return part.reshape(-1, *part.shape[2:])

        return Experience(
            inputs=flat(inputs),
            action=flat(rollout.steps.action),
            log_prob=flat(rollout.log_prob),
            advantage=flat(jnp.sum(stacked, axis=-1)),
            returns=flat(stacked + values),
        )

    def _told(self, rollout: Rollout) -> Metrics:
        """How the episodes of one seed went that ended in this rollout; NaN where none did."""
        done, solvable = rollout.steps.done, rollout.solvable

        def rate(what: Shaped[Array, "time env"], among: Bool[Array, "time env"]) -> Float[Array, ""]:
            return jnp.mean(what.astype(jnp.float32), where=among)

        reached = jnp.mean(rollout.stages.astype(jnp.float32), axis=-1)
        known: Metrics = {}
        if solvable is not None:
            known = {
                "episode/success_solvable": rate(rollout.success, done & solvable),
                "episode/solvable": rate(solvable, done),
            }
        metrics = {
            "episode/count": jnp.sum(done, dtype=jnp.float32),
            "episode/success": rate(rollout.success, done),
            **known,
            "episode/normalized_stage": rate(reached, done),
            "episode/reward": jnp.sum(rollout.reward) / jnp.maximum(jnp.sum(done, dtype=jnp.float32), 1.0),
        }
        for i, name in enumerate(self.world.stage_names):
            metrics[f"stage/{name}"] = rate(rollout.stages[..., i], done)
        return metrics
