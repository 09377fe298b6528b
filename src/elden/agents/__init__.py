"""Agents: what learns from rewards, wherever these come from."""

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
