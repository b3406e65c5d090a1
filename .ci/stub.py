"""Writes pipesim/__init__.pyi, which tells type checkers and editors what the lazy names are."""

from pathlib import Path

import pipesim

by_module = sorted(pipesim._PUBLIC.items(), key=lambda item: (item[1], item[0]))
imports = [f"from {module} import {name} as {name}\n" for name, module in by_module]
stub = Path(pipesim.__file__).with_suffix(".pyi")
stub.write_text("# Written by `make stub` from the list in __init__.py.\n" + "".join(imports) + "\n__version__: str\n")
