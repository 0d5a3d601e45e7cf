"""The example that takes an argument."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

EXAMPLE = Path(__file__).parents[3] / "examples" / "first_operator_sharded.py"


@pytest.mark.regression
def test_without_its_argument_it_says_what_to_give():
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "give this shard a unique name: python first_operator_sharded.py NAME\n"
