from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = {
    "in a test": "import pytest\ndef test_it():\n    pytest.skip('no server')\n",
    "by a mark": "import pytest\n@pytest.mark.skip(reason='no server')\ndef test_it():\n    pass\n",
    "of a file": "import pytest\npytest.skip('no server', allow_module_level=True)\n",
}


@pytest.fixture
def run_tests(tmp_path):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)

    def run(source: str, *options: str, ci: bool = False) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text(source)
        settings = {"HUC_CI": "1" if ci else "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *options, str(tmp_path)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **settings},
            check=False,
        )

    return run


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS)
def test_a_skip_fails_when_nothing_may_be_skipped(run_tests, source):
    done = run_tests(source, ci=True)
    assert done.returncode in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
    assert "no server (skipping is not allowed here)" in done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_the_option_forbids_skips_as_well(run_tests):
    done = run_tests(SKIPS["in a test"], "--no-skips")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


def test_a_skip_is_a_skip_on_a_developers_machine(run_tests):
    done = run_tests(SKIPS["in a test"])
    assert done.returncode == pytest.ExitCode.OK
    assert "1 skipped" in done.stdout


def test_an_expected_failure_is_no_skip(run_tests):
    source = "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n"
    done = run_tests(source, ci=True)
    assert done.returncode == pytest.ExitCode.OK
    assert "1 xfailed" in done.stdout
