"""Input gradient first, weight gradient later, for any module."""
