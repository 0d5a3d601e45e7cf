"""Finds the binaries of a control plane.

It looks in the folder that `KUBEBUILDER_ASSETS` names (the envtest convention), or in kubeshard's folder below the
user's cache directory, where `make kube` puts what it builds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kubeshard.core.errors import ConfigurationError

RELEASE = "v1.37.2"
"""The Kubernetes release that is built and that the tests are written for."""

CORE_PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
OTHER_RELEASES = ("v1.36.3",)
"""Releases of which the core programs are built on demand (`make kube RELEASE=...`)."""

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"


def cache_folder(release: str = RELEASE) -> Path:
    """The folder for the binaries of the release. It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kubeshard" / "kube" / release


def find_assets(programs: Iterable[str] = CORE_PROGRAMS) -> Path:
    """The folder that contains all `programs`. Raises ConfigurationError, which names what is missing and both ways to
    fix it.
    """
    wanted = tuple(programs)
    named = os.environ.get(ASSETS_VARIABLE)
    folder = Path(named) if named else cache_folder()
    missing = [program for program in wanted if not os.access(folder / program, os.X_OK)]
    if not missing:
        return folder
    names = ", ".join(missing)
    if named:
        raise ConfigurationError(
            f"no {names} in {ASSETS_VARIABLE}={named}: unset the variable and run `make kube` "
            "in kubeshard's repository (needs Go), or set it to a folder that contains them"
        )
    raise ConfigurationError(
        f"no {names} in {folder}: run `make kube` in kubeshard's repository (needs Go), "
        f"or set {ASSETS_VARIABLE} to a folder that contains them, as envtest does"
    )
