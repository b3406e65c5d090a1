"""What a model runs on: GPUs, nodes and the network between them."""
