"""``python -m huc_prometheus rules|dashboard``: print what Prometheus and Grafana load."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import huc_prometheus


def main(arguments: list[str] | None = None) -> int:
    """Print a file that comes with the package, or write it.

    Examples
    --------
    >>> main(["rules", "--out", "/no/such/folder/rules.yaml"])
    2
    """
    parser = argparse.ArgumentParser(prog="python -m huc_prometheus", description=__doc__)
    parser.add_argument("what", choices=["rules", "dashboard"])
    parser.add_argument("--out", type=Path, help="file to write; printed when left out")
    chosen = parser.parse_args(arguments)
    text = getattr(huc_prometheus, chosen.what)()
    if chosen.out is None:
        sys.stdout.write(text)
        return 0
    try:
        chosen.out.write_text(text, "utf-8")
    except OSError as error:
        sys.stderr.write(f"`--out` must be a file that can be written; {error}.\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
