"""Ground-truth local graphs: rules that say which edges an event switches on.

A world reports, for every transition, which of its *events* fired ("pick:from_fridge", "moved:x", ...). A
`Rule` attaches edges to an event: every child depends on every parent. The local graph of the transition is the
identity (each variable on its own past) plus the edges of all events that fired. The order of axes is the one used
everywhere in `elden`: `graph[dst, src]`, the action being the last source.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, UInt32

from elden.factors import ACTION, Factors

Fired: TypeAlias = Mapping[str, Bool[Array, ""]]

_WORD = 32


@dataclass(frozen=True)
class Rule:
    """When `event` fires, every child depends on every parent.

    Attributes:
        event: Name of the event; what stands before the first ":" is its type, for reports.
        children: Variables of the next state, as "entity.variable".
        parents: Variables of the current state, or "action".
        cuts_self: The children forget their own past: their diagonal entries are switched off.
    """

    event: str
    children: tuple[str, ...]
    parents: tuple[str, ...]
    cuts_self: bool = False


def event_type(event: str) -> str:
    """The type of an event: "blocked:sink:x" is of type "blocked"."""
    return event.split(":", 1)[0]


@dataclass(frozen=True)
class RuleBook:
    """All rules of a world, and the local graph they give.

    The graph is assembled as bit sets: one row of bits per child, a select and an or of a word or two for each
    (rule, child) pair, and one unpacking at the end.
    """

    factors: Factors
    rules: tuple[Rule, ...]

    @cached_property
    def events(self) -> tuple[str, ...]:
        """Every event name once, in the order of the rules."""
        return tuple(dict.fromkeys(rule.event for rule in self.rules))

    @cached_property
    def edges(self) -> dict[str, Bool[np.ndarray, "dst src"]]:
        """For every event, the off-diagonal edges that it switches on."""
        n = self.factors.num_variables
        masks = {event: np.zeros((n, n + 1), bool) for event in self.events}
        for rule in self.rules:
            for child in rule.children:
                for parent in rule.parents:
                    masks[rule.event][self._child(child), self._source(parent)] = True
        for mask in masks.values():
            mask[:, :n] &= ~np.eye(n, dtype=bool)
        return masks

    @cached_property
    def possible(self) -> Bool[np.ndarray, "dst src"]:
        """Every off-diagonal edge that some event can switch on."""
        n = self.factors.num_variables
        any_edge = np.zeros((n, n + 1), bool)
        for mask in self.edges.values():
            any_edge |= mask
        return any_edge

    def vector(self, fired: Fired) -> Bool[Array, " event"]:
        """The events in order, as one array; what else is in `fired` is left out."""
        self._check(fired)
        if not self.events:
            return jnp.zeros((0,), bool)
        return jnp.stack([fired[event] for event in self.events])

    def graph(self, fired: Fired) -> Bool[Array, "dst src"]:
        """The local graph of a transition in which the events of `fired` happened."""
        self._check(fired)
        n = self.factors.num_variables
        # One flat stack of scalars: XLA then keeps a plain vector loop over environments for every word.
        words = [word for child in range(n) for word in self._row(child, fired)]
        rows = jnp.stack(words).reshape(n, self._num_words)
        blocks = [
            rows[:, word : word + 1] >> jnp.arange(min(_WORD, n + 1 - _WORD * word), dtype=jnp.uint32)
            for word in range(self._num_words)
        ]
        bits: UInt32[Array, "dst src"] = jnp.concatenate(blocks, axis=1)
        return jnp.bitwise_and(bits, jnp.uint32(1)).astype(bool)

    @property
    def _num_words(self) -> int:
        return (self.factors.num_variables + _WORD) // _WORD

    @cached_property
    def _rules_of_child(self) -> tuple[tuple[tuple[str, tuple[int, ...], bool], ...], ...]:
        """For each child, the (event, parent bits, cuts_self) of the rules that touch it."""
        table: list[list[tuple[str, tuple[int, ...], bool]]] = [[] for _ in self.factors.variable_names]
        for rule in self.rules:
            bits = self._bits([self._source(parent) for parent in rule.parents])
            for child in rule.children:
                table[self._child(child)].append((rule.event, bits, rule.cuts_self))
        return tuple(tuple(entries) for entries in table)

    def _row(self, child: int, fired: Fired) -> list[UInt32[Array, ""]]:
        """The parents of one child, as bits."""
        own = self._bits([child])
        words = [jnp.uint32(word) for word in own]
        for event, bits, cuts_self in self._rules_of_child[child]:
            keep = [~own_word & 0xFFFFFFFF if cuts_self else 0xFFFFFFFF for own_word in own]
            words = [
                jnp.where(fired[event], (word & jnp.uint32(kept)) | jnp.uint32(bit), word)
                for word, kept, bit in zip(words, keep, bits, strict=True)
            ]
        return words

    def _bits(self, sources: list[int]) -> tuple[int, ...]:
        words = [0] * self._num_words
        for source in sources:
            words[source // _WORD] |= 1 << (source % _WORD)
        return tuple(words)

    def _child(self, name: str) -> int:
        return self.factors.variable_index(name)

    def _source(self, name: str) -> int:
        return self.factors.num_variables if name == ACTION else self.factors.variable_index(name)

    def _check(self, fired: Fired) -> None:
        missing = sorted(set(self.events) - set(fired))
        if missing:
            raise ValueError(f"rules name events that the world's step does not report: {', '.join(missing)}")
