"""Checkpoints of a running job: written beside, committed by one rename, checked on load, for any layout."""
