"""Where the programs of a control plane are found.

First the folder that `KUBEBUILDER_ASSETS` names (the envtest convention), then kubeshard's folder below the
user's cache directory, where `make kube` puts what it builds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kubeshard.core.errors import ConfigurationError

RELEASE = "v1.36.3"
"""The Kubernetes release that is built, and that the tests are written against."""

CORE_PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"


def cache_folder() -> Path:
    """The folder for the built programs of this release; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kubeshard" / "kube" / RELEASE


def find_assets(programs: Iterable[str] = CORE_PROGRAMS) -> Path:
    """The folder that has all `programs`. Raises ConfigurationError that names what is missing and both ways
    out.
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
            "in kubeshard's repository (needs Go), or set it to a folder that has them"
        )
    raise ConfigurationError(
        f"no {names} in {folder}: run `make kube` in kubeshard's repository (needs Go), "
        f"or set {ASSETS_VARIABLE} to a folder that has them, as envtest does"
    )
