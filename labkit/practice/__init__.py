"""What happens while a plan runs: checkpoints, resharding, memory over many steps, learning rate, scaling."""
