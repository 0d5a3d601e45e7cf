"""What the declaration of an operator loads: each of its instances keeps that in memory for its life."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOT_NEEDED = {
    "pycurl": "it comes with the first connection",
    "yaml": "for kubeconfigs and configuration files",
    "cryptography": "for certificates of webhooks",
    "click": "for commands",
    "uvloop": "for `run`",
    "httptools": "for servers",
    "kubeshard.webhook": "for operators with webhooks",
    "kubeshard.crd.schema": "for `kubeshard crd`",
    "kubeshard.sharder.in_manager": "for instances that may be elected",
}


@pytest.mark.system
def test_a_program_that_declares_a_shard_loads_nothing_that_only_others_need() -> None:
    program = "import sys; from kubeshard import Controller, Manager, Sharding; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not NOT_NEEDED.keys() & set(done.stdout.split())
