"""The detectors by name."""

from elden.graphs.attention import Attention
from elden.graphs.attention_mask import AttentionMask
from elden.graphs.base import Detector
from elden.graphs.gradient import Gradient
from elden.graphs.input_mask import InputMask
from elden.graphs.intervention import Intervention
from elden.graphs.pcmi import Pcmi
from elden.graphs.pcmi_sampled import PcmiSampled
from elden.names import nearest_names

DETECTORS: dict[str, Detector] = {
    detector.name: detector
    for detector in (Gradient(), Pcmi(), PcmiSampled(), Attention(), InputMask(), AttentionMask(), Intervention())
}
"""Every detector by its name, with its default settings. To add one: write its file and name it here."""


def detector_named(name: str) -> Detector:
    """A detector with its default settings; an unknown name is refused with the nearest ones."""
    if name not in DETECTORS:
        raise ValueError(f"no detector {name!r}; {nearest_names(name.lower(), DETECTORS)}")
    return DETECTORS[name]
