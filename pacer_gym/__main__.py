"""`python -m pacer_gym` is `pacer-gym`."""

import sys

from pacer_gym.cli import main

if __name__ == "__main__":
    sys.exit(main())
