"""An environment of somebody else's: plain Gymnasium, registered in a module of its own. Imports nothing of elden."""

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

CORRIDOR = "host_cases:elden-tests/Corridor-v0"
ENDLESS = "host_cases:elden-tests/Endless-v0"


class Corridor(gymnasium.Env[Any, Any]):
    """Walk to the end of a corridor and press there; the lamp goes on, and that is the end.

    Actions are 1 (left), 2 (right) and 3 (press). `heat` is something real that drifts.
    """

    variable_names = ("agent.place", "lamp.on", "heat.near", "heat.far")

    def __init__(
        self,
        length: int = 4,
        fail_at: int = -1,
        die_at: int = -1,
        wrong_at: int = -1,
        nan_at: int = -1,
        hang_at: int = -1,
        tell: bool = False,
    ) -> None:
        self.length, self.tell, self.nan_at, self.hang_at = length, tell, nan_at, hang_at
        self.faults = (fail_at, die_at, wrong_at)
        self.observation_space = spaces.Dict(
            {
                "agent": spaces.MultiDiscrete([length]),
                "lamp": spaces.Discrete(2),
                "heat": spaces.Box(0.0, 1.0, (2,), np.float32),
            }
        )
        self.action_space: Any = spaces.Discrete(3, start=1)
        self.place, self.on, self.taken = 0, 0, 0
        self.heat = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.on = int(self.np_random.integers(self.length - 1)), 0
        self.heat = self.np_random.random(2, np.float32)
        return self._obs(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in (1, 2, 3)
        self.taken += 1
        fail_at, die_at, wrong_at = self.faults
        if self.taken == fail_at:
            raise ZeroDivisionError("the corridor has caved in")
        if self.taken == self.hang_at:
            time.sleep(60)
        if self.taken == die_at:
            os._exit(3)
        last = self.length - 1
        self.on = int(self.on or (action == 3 and self.place == last))
        self.place = int(np.clip(self.place + {1: -1, 2: 1, 3: 0}[int(action)], 0, last))
        self.heat = np.clip(self.heat + self.np_random.normal(0.0, 0.1, 2), 0, 1).astype(np.float32)
        obs = self._obs()
        if self.taken == wrong_at:
            obs["lamp"] = np.int64(7)
        reward = float("nan") if self.taken == self.nan_at else float(self.on)
        return obs, reward, bool(self.on), False, self._info()

    def _obs(self) -> dict[str, Any]:
        return {"agent": np.array([self.place]), "lamp": np.int64(self.on), "heat": self.heat.copy()}

    def _info(self) -> dict[str, Any]:
        noise = {"anything": np.zeros(self.taken % 3)}  # a shape that no vector can hold
        if not self.tell:
            return noise
        there = self.place == self.length - 1
        return {**noise, "is_success": bool(self.on and self.heat[0] > 0.5), "stages": np.array([there, bool(self.on)])}


gymnasium.register("elden-tests/Corridor-v0", entry_point="host_cases:Corridor", max_episode_steps=12)
gymnasium.register("elden-tests/Endless-v0", entry_point="host_cases:Corridor")
