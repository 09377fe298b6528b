"""ELDEN: exploration via local dependencies, on JAX."""

__version__ = "0.1.0"
