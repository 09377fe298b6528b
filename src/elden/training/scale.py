"""What intrinsic rewards are divided by, so that their size does not matter."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from elden.pytree import pytree


@pytree()
@dataclass(frozen=True)
class Scale:
    """Mean and variance of all numbers seen so far, and the discounted sum that each environment is in the middle of.

    Attributes:
        count: How many numbers.
        mean: Their mean.
        squares: Sum of their squared distances from the mean.
        running: Discounted sum of rewards of each environment.
    """

    count: Float[Array, "*run"]
    mean: Float[Array, "*run"]
    squares: Float[Array, "*run"]
    running: Float[Array, "*run env"]

    @classmethod
    def init(cls, num_envs: int) -> "Scale":
        """Nothing seen yet."""
        return cls(jnp.float32(0), jnp.float32(0), jnp.float32(0), jnp.zeros(num_envs, jnp.float32))

    @property
    def deviation(self) -> Float[Array, "*run"]:
        """Standard deviation; 1 where all numbers were equal."""
        variance = self.squares / jnp.maximum(self.count, 1.0)
        return jnp.where(variance > 1e-12, jnp.sqrt(variance), 1.0)

    def sums(
        self, rewards: Float[Array, "time env"], done: Bool[Array, "time env"], discount: float
    ) -> tuple["Scale", Float[Array, "time env"]]:
        """Discounted sums of rewards up to each step, within episodes."""

        def step(
            running: Float[Array, " env"], now: tuple[Float[Array, " env"], Bool[Array, " env"]]
        ) -> tuple[Float[Array, " env"], Float[Array, " env"]]:
            reward, ended = now
            total = discount * running + reward
            return jnp.where(ended, 0.0, total), total

        running, totals = jax.lax.scan(step, self.running, (rewards, done))
        return Scale(self.count, self.mean, self.squares, running), totals

    def see(self, numbers: Float[Array, "..."]) -> "Scale":
        """With these numbers added (Chan et al. 1979)."""
        number = jnp.float32(numbers.size)
        mean = jnp.mean(numbers)
        count = self.count + number
        apart = mean - self.mean
        squares = self.squares + jnp.sum((numbers - mean) ** 2) + apart**2 * self.count * number / count
        return Scale(count, self.mean + apart * number / count, squares, self.running)
