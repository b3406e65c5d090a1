"""Tensor, pipeline and data parallelism together, on torch's DeviceMesh, DTensor styles and FSDP2."""
