"""What is trained: the shape of a transformer, its parameters and FLOPs, and where they are read from."""
