# Written by `make stub` from the list in __init__.py.
from pipesim.errors import PipesimError as PipesimError

__version__: str
