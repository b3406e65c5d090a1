"""Pages made from the code when the site is built: families, commands, the Python API, charts."""
