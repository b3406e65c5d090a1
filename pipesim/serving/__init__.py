"""Serving: what prefill and decode steps cost, and what requests then see."""
