"""``python -m labkit``: the same as the command ``labkit``."""

import sys

from labkit.cli import main

sys.exit(main())
