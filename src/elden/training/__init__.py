"""Training: the loop that lets an agent act, pays it, and lets everything learn."""
