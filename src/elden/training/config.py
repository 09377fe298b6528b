"""Settings of a training run: the agent, the bonus, and how the wheel turns."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

import tyro

from elden.agents.ppo import PpoConfig
from elden.bonuses import BONUSES, BonusConfig
from elden.names import nearest_names

MOST_STEPS = 10**12
"""What no device takes in a year."""
Normalise: TypeAlias = Literal["none", "reward", "return"]


@dataclass(frozen=True)
class LoopConfig:
    """How steps are taken and what their rewards are."""

    num_envs: Annotated[int, tyro.conf.arg(aliases=("--envs",))] = 256
    """Environments of each seed, side by side."""
    rollout: int = 100
    """Steps of each environment between two updates of the policy."""
    steps: Annotated[int, tyro.conf.arg(aliases=("--steps",))] = 2_560_000
    """Steps of each seed in all, rounded up to whole rollouts."""
    warmup_steps: int = 25_600
    """Steps of random actions before the policy learns and intrinsic rewards count, rounded up to whole rollouts."""
    learn_in_warmup: bool = True
    """Whether the bonus already learns in these steps."""
    discount: float = 0.99
    """γ of the task's rewards."""
    intrinsic_discount: float = 0.99
    """γ of the bonus."""
    intrinsic_weight: float = 0.1
    """β, the weight of the bonus."""
    normalise: Normalise = "reward"
    """What the bonus is divided by: nothing, the deviation of rewards so far, or that of their discounted sums."""
    separate_values: bool = True
    """Whether task and bonus have a value head each; else they are one reward."""
    horizon_ends: bool = False
    """Whether the end of an episode at its last step counts as termination."""
    see_time: bool = True
    """Whether the policy sees how much of the episode is over."""

    def __post_init__(self) -> None:
        for name, most in (("num_envs", 10**6), ("rollout", 10**6), ("steps", MOST_STEPS)):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be 1 or more")
            if getattr(self, name) > most:
                raise ValueError(f"{name}={getattr(self, name)} given; it takes 1 to {most}")
        for name in ("discount", "intrinsic_discount"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} given; it must lie between 0 and 1")
        for name in ("warmup_steps", "intrinsic_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be 0 or more, and finite")
        if self.iterations >= 10**9:
            raise ValueError(
                f"steps={self.steps} given; with {self.steps_per_iteration} steps in a rollout that is more rollouts"
                " than can be counted: give more environments, longer rollouts or fewer steps"
            )

    @property
    def steps_per_iteration(self) -> int:
        """Steps of one seed in one rollout."""
        return self.num_envs * self.rollout

    @property
    def iterations(self) -> int:
        """Rollouts in all."""
        return -(-self.steps // self.steps_per_iteration)

    @property
    def warmup_iterations(self) -> int:
        """Rollouts with random actions."""
        return -(-self.warmup_steps // self.steps_per_iteration)


@dataclass(frozen=True)
class TrainingConfig:
    """A training run: its bonus, how it learns, and how often it is repeated."""

    bonus_name: Annotated[str, tyro.conf.arg(name="bonus", metavar=f"{{{','.join(BONUSES)}}}")] = "elden"
    """The intrinsic reward beside that of the task."""
    bonus: BonusConfig = field(default_factory=BonusConfig)
    """Settings of the bonus; those that the chosen one does not read are refused."""
    ppo: PpoConfig = field(default_factory=PpoConfig)
    """The policy's learning."""
    loop: LoopConfig = field(default_factory=LoopConfig)
    """Steps and rewards."""
    seeds: int = 3
    """Independent agents, trained side by side."""
    seed: int = 0
    """Seed of the first of them; the others follow."""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"seeds={self.seeds} given; at least 1 agent is trained")
        if self.seeds > 10_000:
            raise ValueError(f"seeds={self.seeds} given; at most 10000 agents are trained side by side")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed={self.seed} given; it must lie between 0 and 2**31 - 1")
        if self.bonus_name not in BONUSES:
            raise ValueError(f"no bonus {self.bonus_name!r}; {nearest_names(self.bonus_name.lower(), BONUSES)}")

    @property
    def all_seeds(self) -> range:
        """The seeds of all agents."""
        return range(self.seed, self.seed + self.seeds)
