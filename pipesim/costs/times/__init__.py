"""How long the work of a stage takes."""
