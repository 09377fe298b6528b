"""Write the index of all options, from which the command line refuses names that do not exist.

python tools/option_index.py
"""

import json

from elden.cli.index import FILE, made

if __name__ == "__main__":
    FILE.write_text(json.dumps(made(), indent=1) + "\n")
