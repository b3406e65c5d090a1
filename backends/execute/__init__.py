"""A rank's program, walked on real stages and real processes."""
