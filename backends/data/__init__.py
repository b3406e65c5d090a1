"""Text for training: tokenizers, a small built-in text, and samples that follow from a seed and a step."""
