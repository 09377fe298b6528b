"""Sizes of the network and settings of its training, with the paper's values as defaults."""

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from elden.factors import Granularity
from elden.nn import Activation

Precision: TypeAlias = Literal["float32", "bfloat16"]
DerivativeOf: TypeAlias = Literal["log-probability", "probability"]


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of one network, which predicts one child (paper, Table "Parameters of the dynamics model training")."""

    children: Granularity = "variable"
    """What one network predicts: one variable, or all variables of one entity."""
    inputs: Granularity = "entity"
    """What one input is: one variable, or all variables of one entity. The action is one more input."""
    features: tuple[int, ...] = (64, 64)
    """Widths of the layers of the MLP that each input has of its own."""
    heads: int = 4
    """Heads of both attention layers."""
    head_size: int = 16
    """Length of the keys, queries and values of one head."""
    mlp: tuple[int, ...] = (64, 64)
    """Widths of the MLP behind each attention layer; the last one must equal the last feature width."""
    activation: Activation = "relu"
    """Activation function of all MLPs."""

    def __post_init__(self) -> None:
        for name in ("features", "mlp"):
            sizes: tuple[int, ...] = getattr(self, name)
            if not sizes or min(sizes) < 1:
                raise ValueError(f"{name}={sizes} given; it takes at least one width, all of them 1 or more")
        if self.heads < 1 or self.head_size < 1:
            raise ValueError(f"heads={self.heads}, head_size={self.head_size} given; both must be 1 or more")
        if self.mlp[-1] != self.features[-1]:
            raise ValueError(
                f"mlp={self.mlp} ends with {self.mlp[-1]} but features={self.features} with {self.features[-1]};"
                " the residual connections need them equal"
            )

    @property
    def width(self) -> int:
        """Length of a feature vector."""
        return self.features[-1]


KITCHEN_NETWORK = NetworkConfig(features=(128, 128), mlp=(128, 128), head_size=32)
"""The paper's sizes for its kitchen."""


@dataclass(frozen=True)
class TrainConfig:
    """How an ensemble of networks is trained."""

    learning_rate: float = 3e-4
    """Learning rate of Adam."""
    anneal_start: int = 0
    """Update up to which the learning rate is constant."""
    anneal_stop: int = 0
    """Update from which the learning rate is 0; in between it falls linearly. 0 keeps it constant."""
    batch_size: int = 32
    """Transitions in one update of one member."""
    clip: float = 10.0
    """Largest norm of an ensemble's gradient; larger ones are scaled down to it."""
    mixup: float = 1.0
    """Parameter of the Beta distribution of mixup coefficients; 0 switches mixup off."""
    penalty: float = 1e-3
    """Weight λ of the penalty on partial derivatives; 0 switches it off."""
    penalty_start: int = 50_000
    """Update up to which λ is 0."""
    penalty_stop: int = 100_000
    """Update from which λ has its full value; in between it rises linearly."""
    penalty_of: DerivativeOf = "probability"
    """Whose derivative is penalised: that of log p̂, as in the paper's programs, or that of p̂, as it writes."""
    precision: Precision = "float32"
    """Number format of activations; parameters, likelihoods and optimiser always have float32. A bonus judges steps in
    the same format."""
    priority: float = 0.0
    """Exponent of sampling by prediction error; 0 samples uniformly."""
    weight: float = 0.0
    """Exponent of the importance weights that make up for sampling by priority; 1 makes up for all of it."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size} given; an update needs at least 1 transition")
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be above 0, and finite")
        for name in ("mixup", "penalty", "priority", "weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be 0 or more, and finite")
        if not 0 <= self.penalty_start <= self.penalty_stop:
            raise ValueError(
                f"penalty_start={self.penalty_start}, penalty_stop={self.penalty_stop} given;"
                " the rise must start at 0 or later and not end before it starts"
            )

        if not 0 <= self.anneal_start <= self.anneal_stop:
            raise ValueError(
                f"anneal_start={self.anneal_start}, anneal_stop={self.anneal_stop} given;"
                " the fall must start at 0 or later and not end before it starts"
            )

    def within(self, updates: int) -> "TrainConfig":
        """The same with the rise of λ over by a fifth of so many updates, as in the paper, where it would be later."""
        share = min(1.0, updates / max(1, 5 * self.penalty_stop))
        start, stop = int(share * self.penalty_start), int(share * self.penalty_stop)
        return replace(self, penalty_start=start, penalty_stop=stop)
