"""Llama-style decoders, built stage by stage, and other models cut into stages by the same rule."""
