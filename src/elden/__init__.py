"""ELDEN: exploration via local dependencies, on JAX."""

from elden.factors import Continuous, Discrete, Entity, Factors, Variable
from elden.worlds.registry import make

__version__ = "0.1.0"

__all__ = ["Continuous", "Discrete", "Entity", "Factors", "Variable", "__version__", "make"]
