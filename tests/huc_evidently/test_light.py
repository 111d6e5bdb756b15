"""What Evidently costs, and who pays for it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

HOSTS = {"apprise", "evidently", "mlflow", "prometheus_client", "pyspark"}


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("package", ["huc_monitor", "huc_evidently", "huc_prometheus"])
def test_importing_a_package_loads_no_host_until_one_is_used(package):
    code = f"import sys, json, {package}; print(json.dumps(sorted(sys.modules)))"
    loaded = {name.split(".")[0] for name in json.loads(run_python(code))}
    assert package in loaded
    assert not loaded & HOSTS


@pytest.mark.slow
def test_importing_the_package_takes_a_small_part_of_what_importing_evidently_takes():
    if importlib.util.find_spec("evidently") is None:
        pytest.skip("needs evidently")

    def seconds(statement):
        code = f"{statement}; import time; print(time.process_time())"
        return float(run_python(code))

    light = seconds("import huc_monitor, huc_evidently")
    heavy = seconds("import huc_monitor; from huc_evidently import HUCPreset")
    print(f"CPU seconds: {light:.2f} without Evidently, {heavy:.2f} with it")
    assert light < heavy / 3


def test_a_missing_extra_is_named_with_the_command_that_installs_it():
    code = (
        "import sys; sys.modules['evidently'] = None\n"
        "import huc_evidently\n"
        "try: huc_evidently.HUCPreset\n"
        "except ImportError as error: print(error)"
    )
    assert run_python(code).strip().endswith("pip install 'huc-monitor[evidently]'")


def test_an_unknown_name_is_an_attribute_error():
    import huc_evidently

    with pytest.raises(AttributeError, match="No huc_evidently attribute HUCPresets"):
        _ = huc_evidently.HUCPresets
