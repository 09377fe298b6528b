"""Statistics of few agents: exact intervals of success rates, and medians of times that not every agent has reached."""

import numpy as np
from jaxtyping import Float


def exact_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The Clopper-Pearson interval of a binomial rate.

    It covers the true rate with at least the given probability, whatever that rate is, also where none or all of the
    trials were successes.

    Args:
        successes: Trials that were successes.
        trials: All trials.
        level: Probability with which the interval covers the rate.

    Raises:
        ValueError: The counts or the level are impossible.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes in {trials} trials given; need 0 <= successes <= trials, and a trial")
    if not 0 < level < 1:
        raise ValueError(f"level={level} given; it lies between 0 and 1")
    from scipy.stats import binomtest  # takes long to load

    found = binomtest(successes, trials).proportion_ci(level, method="exact")
    return float(found.low), float(found.high)


def censored_median(times: Float[np.ndarray, " agent"]) -> float:
    """The median of times of which some are censored: those agents had not arrived when their training ended.

    All agents are followed equally long, so a censored time is larger than every observed one, and the median is known
    as soon as half of the agents have arrived. Where exactly half have, it is the time of the last of these (the
    median of the Kaplan-Meier estimate); where more have, it is the ordinary median.

    Args:
        times: Time at which each agent arrived; NaN where it is censored.

    Returns:
        The median; infinity where fewer than half have arrived.

    Raises:
        ValueError: There are no agents.
    """
    if not len(times):
        raise ValueError("a median needs at least one agent")
    arrived = np.isfinite(times)
    if 2 * arrived.sum() == len(times):
        return float(times[arrived].max())
    return float(np.median(np.where(arrived, times, np.inf)))
