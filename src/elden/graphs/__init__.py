"""Who influences whom at this very step: detectors, thresholds and measures of local dependency graphs."""
