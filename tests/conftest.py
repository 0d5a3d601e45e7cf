"""Fixtures of kubeshard's own tests: the programs of the Go reference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def go_sharder() -> Path:
    return _reference_program("KUBESHARD_GO_SHARDER", "sharder")


@pytest.fixture(scope="session")
def go_operator() -> Path:
    return _reference_program("KUBESHARD_GO_OPERATOR", "webhosting-operator")


@pytest.fixture(scope="session")
def go_checksum() -> Path:
    return _reference_program("KUBESHARD_GO_CHECKSUM", "checksum-controller")


@pytest.fixture(scope="session")
def go_measure() -> Path:
    return _reference_program("KUBESHARD_GO_MEASURE", "measure")


@pytest.fixture(scope="session")
def go_manifests() -> Path:
    """The output of `kubectl kustomize config/default` in the Go reference, in a file."""
    named = os.environ.get("KUBESHARD_GO_MANIFESTS")
    if not named:
        pytest.skip(
            "did not run: set KUBESHARD_GO_MANIFESTS to a file with the Go reference's rendered manifests"
        )
    return Path(named)


def _reference_program(variable: str, name: str) -> Path:
    """Returns a program of the Go reference. A variable that is set but wrong is a failure, not a reason to skip."""
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"did not run: set {variable} to the Go reference's {name} binary")
    if not os.access(named, os.X_OK):
        pytest.fail(f"{variable}={named} is not an executable file", pytrace=False)
    return Path(named)
