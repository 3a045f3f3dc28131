"""Run the Node tests of the shared JavaScript (tests/js) as part of the suite."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "tests" / "js").glob("*.test.mjs"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_in_node(path):
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        pytest.skip("there is no Node: install it (Debian: apt-get install nodejs) and run again")
    run = subprocess.run([node, "--test", str(path)], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    passed = [line for line in run.stdout.splitlines() if line.lstrip("#ℹ ").startswith("pass ")]
    assert passed and int(passed[0].split()[-1]) > 0, run.stdout
