"""What runs where, in which order: actions, placement, schedules, the dependency rule, lowering, the checker."""
