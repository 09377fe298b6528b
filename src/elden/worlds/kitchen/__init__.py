"""The kitchen: a fast kinematic twin (`twin`), and the same with a simulated arm in robosuite (`robosuite`)."""
