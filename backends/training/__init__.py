"""Training under a layout: one loop, with checkpoints and restarts where they are asked for."""
