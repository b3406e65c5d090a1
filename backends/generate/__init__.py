"""Text generation through the pipeline: prefill and decode with keys and values kept by every stage."""
