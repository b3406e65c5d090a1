"""Options of commands in groups, each declared once, and what is made of them."""
