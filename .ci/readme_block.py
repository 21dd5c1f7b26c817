"""Print a block of README.md: ``readme_block.py HEADING [LANGUAGE]``, bash unless it is given."""

import re
import sys
from pathlib import Path

heading, language = (*sys.argv[1:], "bash")[:2]
text = Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8")
section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
block = section and re.search(rf"^```{re.escape(language)}\n(.*?)^```", section[1], re.M | re.S)
if not block:
    sys.exit(f"README.md has no {language} block under '## {heading}'")
sys.stdout.write(block[1])
