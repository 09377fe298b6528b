"""Dynamics curiosity: the error of the prediction (Burda et al. 2018)."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from elden.bonuses.beliefs import child_means
from elden.bonuses.model_based import ChildSignal, Judged
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import slot_errors, slot_log_likelihood


@dataclass(frozen=True)
class Curiosity(ChildSignal):
    """`1 − p̂` of what happened to each child, or its squared error; the mean over members, of which one is enough."""

    name: ClassVar[str] = "curiosity"

    def rewards(self, layout: Layout, judged: Judged) -> Float[Array, "batch child 1"]:
        """Mean error over the variables of each child."""

        def one(out: Float[Array, "child slot value batch"]) -> Float[Array, "child batch"]:
            return child_means(layout, slot_errors(layout, slot_log_likelihood(layout, out, judged.batch)))

        return jnp.mean(jax.vmap(one)(judged.outputs), axis=0).T[..., None]
