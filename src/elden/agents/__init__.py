"""Agents: what learns from rewards, wherever these come from."""

from typing import TYPE_CHECKING

from elden.lazy import lazily

if TYPE_CHECKING:
    from elden.agents.actions import Categorical, Normal, actions_of
    from elden.agents.base import Agent, Trajectory, act
    from elden.agents.ppo import Experience, Ppo, PpoConfig, PpoState

__all__ = [
    "Agent",
    "Categorical",
    "Experience",
    "Normal",
    "Ppo",
    "PpoConfig",
    "PpoState",
    "Trajectory",
    "act",
    "actions_of",
]

_HOMES = {
    "Agent": "elden.agents.base",
    "Categorical": "elden.agents.actions",
    "Experience": "elden.agents.ppo",
    "Normal": "elden.agents.actions",
    "Ppo": "elden.agents.ppo",
    "PpoConfig": "elden.agents.ppo",
    "PpoState": "elden.agents.ppo",
    "Trajectory": "elden.agents.base",
    "act": "elden.agents.base",
    "actions_of": "elden.agents.actions",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
