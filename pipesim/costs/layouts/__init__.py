"""How a model is split over GPUs."""
