"""Print the fenced block of README.md under a heading: ``readme_block.py "Run it"``."""

import re
import sys
from pathlib import Path

text = Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8")
block = re.search(rf"^## {re.escape(sys.argv[1])}$.*?^```bash\n(.*?)^```", text, re.M | re.S)
if block is None:
    sys.exit(f"README.md has no bash block under '## {sys.argv[1]}'")
sys.stdout.write(block[1])
