"""Compilation ahead of use, so that it can be timed apart."""

import time
from collections.abc import Callable
from typing import TypeVar

import jax

_Result = TypeVar("_Result")


def compile_ahead(
    function: Callable[..., _Result], arguments: tuple[object, ...]
) -> tuple[Callable[..., _Result], float]:
    """The compiled function for arguments of these shapes, and the seconds it took to compile.

    Args:
        function: A pure function of trees of arrays.
        arguments: Arguments like those that it will be called with.
    """
    began = time.perf_counter()
    # Leaves rather than trees, because jax fills the trees that it lowers with descriptions of arrays, which checked
    # dataclasses refuse.
    leaves, structure = jax.tree.flatten(arguments)

    def of_leaves(*leaves: object) -> _Result:
        return function(*jax.tree.unflatten(structure, leaves))

    compiled = jax.jit(of_leaves).lower(*leaves).compile()

    def call(*given: object) -> _Result:
        result: _Result = compiled(*jax.tree.leaves(given))
        return result

    return call, time.perf_counter() - began
