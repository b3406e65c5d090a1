"""Search for schedules: the best order for given costs and memory."""
