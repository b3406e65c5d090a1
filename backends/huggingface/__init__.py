"""Checkpoints of others: Hugging Face folders of safetensors, read and written part by part."""
