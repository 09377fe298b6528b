"""Training: the loop that lets an agent act, rewards it, and lets everything learn."""
