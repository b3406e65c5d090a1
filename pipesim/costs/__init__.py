"""How long and how many bytes: models, clusters, layouts and what they cost."""
