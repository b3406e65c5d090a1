"""What messages and collectives cost."""
