"""What a run is measured with: clocks, timelines, costs of stages and links."""
