"""`python -m engine`: the `engine` command where scripts are not on the PATH."""

import sys

from .cli import main

sys.exit(main())
