"""What should happen: memory, traffic, compute and time of a plan."""
