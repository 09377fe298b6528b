"""How often each edge of local graphs was there in episodes, in truth and as an agent's models predict it."""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Bool, Int

_Counts: TypeAlias = Int[np.ndarray, "agent dst src"]
_Counted = TypeVar("_Counted", "Edges", "Edge")

Density: TypeAlias = Literal["nearly all", "some", "nearly none"]
NEARLY_ALL, NEARLY_NONE = 0.9, 0.001
"""Shares of the edges between different nodes above and below which graphs hardly tell one step from another."""

_COUNTS = ("steps", "episodes", "true", "true_episodes", "predicted", "both")


@dataclass(frozen=True)
class Edges:
    """How often each edge was there in the steps of each agent.

    Attributes:
        dst_names: Names of the destinations.
        src_names: Names of the sources, the action last.
        steps: Steps of each agent.
        episodes: Episodes of each agent.
        true: Steps in which the edge was in the world's true local graph; None where that is not known.
        true_episodes: Episodes with such a step; None likewise.
        predicted: Steps in which most members of the agent's own ensemble see the edge; None without an ensemble.
        both: Steps in which both hold; None where one of them is not known.
    """

    dst_names: tuple[str, ...]
    src_names: tuple[str, ...]
    steps: Int[np.ndarray, " agent"]
    episodes: int
    true: Int[np.ndarray, "agent dst src"] | None
    true_episodes: Int[np.ndarray, "agent dst src"] | None
    predicted: Int[np.ndarray, "agent dst src"] | None
    both: Int[np.ndarray, "agent dst src"] | None

    @classmethod
    def count(
        cls,
        names: tuple[tuple[str, ...], tuple[str, ...]],
        counts: Bool[np.ndarray, "time agent episode"],
        truth: Bool[np.ndarray, "time agent episode dst src"] | None,
        predicted: Bool[np.ndarray, "time agent episode dst src"] | None,
    ) -> "Edges":
        """Those of some episodes."""
        mask = counts[..., None, None]
        true = None if truth is None else truth & mask
        seen = None if predicted is None else predicted & mask
        return cls(
            *names,
            steps=counts.sum((0, 2)),
            episodes=counts.shape[2],
            true=None if true is None else true.sum((0, 2)),
            true_episodes=None if true is None else true.any(0).sum(1),
            predicted=None if seen is None else seen.sum((0, 2)),
            both=None if seen is None or true is None else (seen & true).sum((0, 2)),
        )

    def __add__(self, other: "Edges") -> "Edges":
        """The same edges in more episodes."""
        return _added(self, other)

    def rows(self, agent: int | None = None) -> list["Edge"]:
        """Every edge, of one agent or of all of them together."""

        def of(counts: _Counts) -> Int[np.ndarray, "dst src"]:
            return np.asarray(counts.sum(0) if agent is None else counts[agent])

        agents = len(self.steps) if agent is None else 1
        steps = int(self.steps.sum() if agent is None else self.steps[agent])
        parts = (self.true, self.true_episodes, self.predicted, self.both)
        counts = [None if part is None else of(part) for part in parts]
        return [
            Edge(
                dst, src, steps, agents * self.episodes, *(None if each is None else int(each[i, j]) for each in counts)
            )
            for i, dst in enumerate(self.dst_names)
            for j, src in enumerate(self.src_names)
        ]

    def between(self, agent: int | None = None) -> "Between":
        """All edges but self-edges as one, of one agent or of all of them together."""
        rows = [row for row in self.rows(agent) if not row.is_self_edge]

        def total(name: str) -> int | None:
            counts = [getattr(row, name) for row in rows]
            return None if None in counts else sum(counts)

        return Between(sum(row.steps for row in rows), total("true"), total("predicted"), total("both"))


@dataclass(frozen=True)
class Between:
    """What models see of the edges between different nodes, over all such edges and steps.

    Attributes:
        edges: Edges of all steps, whether there or not.
        true: Those that were there; None where that is not known.
        predicted: Those that most members see; None without models.
        both: Those of which both hold; None where one of them is not known.
    """

    edges: int
    true: int | None
    predicted: int | None
    both: int | None

    @property
    def true_rate(self) -> float | None:
        """Share of the edges that were there."""
        return None if self.true is None or not self.edges else self.true / self.edges

    @property
    def predicted_rate(self) -> float | None:
        """Share of the edges that the models see."""
        return None if self.predicted is None or not self.edges else self.predicted / self.edges

    @property
    def precision(self) -> float | None:
        """Share of what the models see that was there; None where they see nothing."""
        return None if self.both is None or not self.predicted else self.both / self.predicted

    @property
    def recall(self) -> float | None:
        """Share of what was there that the models see; None where nothing was."""
        return None if self.both is None or not self.true else self.both / self.true

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None where nothing was there and nothing is seen."""
        if self.true is None or self.predicted is None or self.both is None or not self.true + self.predicted:
            return None
        return 2 * self.both / (self.true + self.predicted)

    @property
    def density(self) -> Density | None:
        """How many edges the models see: all or none is what a wrong threshold gives, whatever the steps were."""
        rate = self.predicted_rate
        if rate is None:
            return None
        return "nearly all" if rate > NEARLY_ALL else "nearly none" if rate < NEARLY_NONE else "some"

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        names = ("true_rate", "predicted_rate", "precision", "recall", "f1", "density")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Edge:
    """How often one edge was there: counts as in `Edges`, and what follows from them."""

    dst: str
    src: str
    steps: int
    episodes: int
    true: int | None
    true_episodes: int | None
    predicted: int | None
    both: int | None

    def __add__(self, other: "Edge") -> "Edge":
        """Both as one, under the name of this one."""
        return _added(self, other)

    @property
    def is_self_edge(self) -> bool:
        """Whether it comes from the destination itself, or from a part of it, or from what it is a part of."""
        dst, src = self.dst.split("."), self.src.split(".")
        return all(one == other for one, other in zip(dst, src, strict=False))

    @property
    def true_rate(self) -> float | None:
        """Share of steps in which it was true."""
        return None if self.true is None else self.true / self.steps

    @property
    def episode_rate(self) -> float | None:
        """Share of episodes in which it was true at least once."""
        return None if self.true_episodes is None else self.true_episodes / self.episodes

    @property
    def predicted_rate(self) -> float | None:
        """Share of steps in which the models predict it."""
        return None if self.predicted is None else self.predicted / self.steps

    @property
    def recall(self) -> float | None:
        """Share of the steps with it in which the models predict it."""
        return None if self.both is None or not self.true else self.both / self.true

    @property
    def precision(self) -> float | None:
        """Share of the steps in which the models predict it in which it was true."""
        return None if self.both is None or not self.predicted else self.both / self.predicted

    @property
    def agreement(self) -> float | None:
        """Share of steps in which the models and the world say the same."""
        if self.true is None or self.predicted is None or self.both is None:
            return None
        return 1.0 - (self.true + self.predicted - 2 * self.both) / self.steps

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "dst": self.dst,
            "src": self.src,
            "self_edge": self.is_self_edge,
            "steps": self.steps,
            "true_steps": self.true,
            "true_rate": self.true_rate,
            "true_episodes": self.true_episodes,
            "episode_rate": self.episode_rate,
            "predicted_steps": self.predicted,
            "predicted_rate": self.predicted_rate,
            "recall": self.recall,
            "precision": self.precision,
            "agreement": self.agreement,
        }


def _added(one: _Counted, other: _Counted) -> _Counted:
    """The counts of both together, under the names of the first; None where one of them has none."""
    sums: dict[str, Any] = {}
    for name in _COUNTS:
        mine, theirs = getattr(one, name), getattr(other, name)
        sums[name] = None if mine is None or theirs is None else mine + theirs
    return replace(one, **sums)
