"""`python -m pipesim`."""

import sys

from pipesim.cli import main

if __name__ == "__main__":
    sys.exit(main())
