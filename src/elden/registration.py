"""The Gymnasium ids of the worlds. Light: naming an environment must not cost the import of JAX."""

import gymnasium

IDS = {
    "elden/Thawing-v0": "thawing",
    "elden/CarWash-v0": "carwash",
    "elden/Minecraft2D-v0": "minecraft",
    "elden/Kitchen-v0": "kitchen",
    "elden/Empty-v0": "empty",
    "elden/Chain-v0": "chain",
}
"""The world behind every Gymnasium id."""
ROBOSUITE_ID = "elden/KitchenRobosuite-v0"
"""The kitchen with physics; it needs robosuite, which is optional."""


def register_all() -> None:
    """Register every world with Gymnasium."""
    for env_id, world in IDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="elden.worlds.gym:WorldEnv",
                vector_entry_point="elden.worlds.gym:WorldVectorEnv",
                kwargs={"world": world},
            )
    if ROBOSUITE_ID not in gymnasium.registry:
        gymnasium.register(id=ROBOSUITE_ID, entry_point="elden.worlds.kitchen.robosuite:KitchenRobosuiteEnv")
