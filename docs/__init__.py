"""The documentation; `generate` makes the pages that come from the code."""
