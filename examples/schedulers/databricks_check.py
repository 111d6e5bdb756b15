"""Check a model as a task of a Databricks job, which looks at errors and not at exit codes."""

import sys

from huc_monitor.cli import main

code = main(["check", "--config", sys.argv[1], "--wait", "10m"])
if code:
    raise RuntimeError(f"huc-monitor check ended with exit code {code}; the reason is above")
