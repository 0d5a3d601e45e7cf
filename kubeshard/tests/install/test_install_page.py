"""docs/install.md: its commands have the effect that it describes, in its order."""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path

import pytest
from install_page import ROOT, Shell, blocks, commands
from installed_cluster import Cluster

from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import free_port


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    return Shell(cluster, tmp_path)


def test_every_block_is_in_a_section_that_is_run() -> None:
    run = [*commands("Install"), *commands("Upgrade and rollback"), *commands("Uninstall")]
    run += [*commands("With Helm"), *commands("Without a cluster", "console")]
    assert len(run) == sum(len(block.splitlines()) for block in blocks())


def test_it_is_installed_upgraded_and_removed_as_the_page_says(shell: Shell) -> None:
    if shutil.which("diff") is None:
        pytest.skip("no program `diff`, which `kubectl diff` starts")
    for command in commands("Install"):
        shell.run(command)
    rings = shell.run("kubectl get controllerrings -o name")
    assert rings.split() == ["controllerring.sharding.timebertt.dev/pages"]
    for command in commands("Upgrade and rollback"):
        shell.run(command, allowed=int(command.startswith("kubectl diff")))
        if command.startswith("kubectl diff"):
            image = "kubectl -n sharding-system get deployment sharder -o jsonpath={..image}"
            assert shell.run(image) == "REGISTRY/kubeshard:TAG"
    assert shell.run(image) == "REGISTRY/kubeshard:TAG"
    for command in commands("Uninstall"):
        shell.run(command)
    left = (
        "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,crds"
    )
    assert not shell.run(f"kubectl get {left} -o name -l app.kubernetes.io/name=controller-sharding")


def test_from_a_clone_a_sharder_runs_after_three_commands(shell: Shell, tmp_path: Path) -> None:
    """It prints how long the commands took, from the first until a ring is served."""
    first, second, third = commands("Without a cluster", "console")
    began = time.monotonic()
    shell.run(first)
    shell.run(second)
    # Port 9443 may be in use on this machine.
    config = "examples/first_operator_sharder.yaml"
    text = (ROOT / config).read_text().replace("9443", str(free_port()))
    (tmp_path / "sharder.yaml").write_text(text)
    assert config in third
    program, *arguments = shlex.split(third.replace(config, str(tmp_path / "sharder.yaml")))
    child = Child("sharder", [str(tmp_path / program), *arguments], tmp_path / "log", shell.environment)
    try:
        ready = (
            "kubectl get controllerring pages -o jsonpath='{.status.conditions[?(@.type==\"Ready\")].status}'"
        )

        def served() -> bool:
            assert child.running, child.tail()
            return shell.run(ready) == "True"

        wait_until(served, 60, "the ring is ready")
        print(f"3 commands, {time.monotonic() - began:.0f} s")
    finally:
        assert child.stop(grace=30) == 0, child.tail()
        for what in ("ring examples/first_operator_ring.yaml", "sharder"):
            shell.run(f"kubeshard manifests {what} | kubectl delete --ignore-not-found -f -")
