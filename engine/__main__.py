"""Run the `engine` command as `python -m engine`, for systems where scripts are not on the PATH."""

import sys

from .cli.main import main

sys.exit(main())
