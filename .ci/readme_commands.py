"""Print the commands on the README's first screen, one a line, as a reader pastes them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

EXPECTED = 2

readme = Path(__file__).parents[1] / "README.md"
block = re.search(r"^```sh\n(.*?)^```$", readme.read_text("utf-8"), re.DOTALL | re.MULTILINE)
commands = block.group(1).splitlines() if block else []
if len(commands) != EXPECTED:
    sys.exit(f"README.md: the first ```sh block must hold {EXPECTED} commands; got {commands}")
print("\n".join(commands))
