"""`kubeshard release-finalizers` at its prompt."""

from __future__ import annotations

import asyncio

import click
import pytest
from click.testing import CliRunner

from kubeshard.cli.program import cli
from kubeshard_apiserver.testing import KubeApi

KEY = "prompt.example.com/held"


def test_it_asks_outside_of_an_event_loop_which_would_swallow_the_first_interrupt(
    kube_api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"name": "held", "namespace": "default", "finalizers": [KEY]}
    kube_api.install({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    asked = []

    def confirm(text: str, *, abort: bool) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        asked.append(text)
        raise click.Abort

    monkeypatch.setattr(click, "confirm", confirm)
    options = ["--finalizer", KEY, "--release", "--kubeconfig", str(kube_api.kubeconfig)]
    done = CliRunner().invoke(cli, ["release-finalizers", *options], standalone_mode=False)
    assert isinstance(done.exception, click.Abort)
    assert asked == ["1 object is held. Remove the finalizers?"]
