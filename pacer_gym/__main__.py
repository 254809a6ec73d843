"""`python -m pacer_gym` is `pacer-gym`."""

import sys

from pacer_gym.cli import main

if __name__ == "__main__":
    sys.argv[0] = "pacer-gym"  # what results say they were made by
    sys.exit(main())
