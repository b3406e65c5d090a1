"""What commands print and draw of what they found."""
