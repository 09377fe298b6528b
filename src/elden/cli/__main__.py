"""`python -m elden.cli` is `elden`."""

import sys

from elden.cli import main

sys.exit(main())
