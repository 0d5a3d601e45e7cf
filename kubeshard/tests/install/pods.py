"""What a kubelet would start of a pod: the process of its one container, from this checkout or from the unpacked
image.

`KUBESHARD_IMAGE` names the layout that `make image` makes; as root, and with umoci. A container then has the image's
files and nothing else: no capability, no right to write, the token and the mounted files where a pod has them.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest
import yaml
from installed_cluster import Cluster

from image.containers import TOKENS, Container, Unpacked
from kubeshard.version import __version__
from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.child import Child
from make_image import missing

_numbers = itertools.count(1)


class Pod(Protocol):
    """Of a service account. Its end is that of its process."""

    @property
    def running(self) -> bool: ...

    def tail(self, lines: int = 20) -> str:
        """Of its log."""
        ...

    def stop(self, grace: float) -> int:
        """As the kubelet does it. Returns the exit code."""
        ...

    def kill(self) -> None: ...


class Pods:
    """Starts pods. They see files of this machine by the paths of `mounts`, in the container or, without an image, in
    their arguments.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        named = os.environ.get("KUBESHARD_IMAGE")
        if named and (lacks := missing("umoci", "unshare")):
            pytest.fail(f"KUBESHARD_IMAGE: {lacks}", pytrace=False)
        if named and not Path(named, "index.json").exists():
            pytest.fail(f"KUBESHARD_IMAGE={named}: no image there: run `make image`", pytrace=False)
        self._image = Unpacked(Path(named), __version__, folder / "bundle") if named else None

    def start(
        self, account: tuple[str, str], container: Mapping[str, Any], mounts: Mapping[str, Path]
    ) -> Pod:
        """Of what a Deployment's template says, with a name of its own."""
        assert container["command"] == ["kubeshard"]
        name = f"{account[1]}-{next(_numbers)}"
        variables = {each["name"]: _value(each, account) for each in container.get("env", ())}
        if self._image:
            return _Contained(
                self._container(self._image, name, account, container["args"], variables, mounts)
            )
        arguments = list(container["args"])
        for path, source in mounts.items():
            arguments = [word.replace(path, str(source)) for word in arguments]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ["PYTHONPATH"],
            "HOME": "/nonexistent",
            "TMPDIR": "/nonexistent",
            "KUBECONFIG": str(self._kubeconfig(account, self._folder / f"{name}.kubeconfig")),
            **variables,
        }
        command = [sys.executable, "-m", "kubeshard", *arguments]
        return Child(name, command, self._folder / f"{name}.log", environment)

    def remove(self) -> None:
        """The image's files."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._folder / "bundle")

    def _container(
        self,
        image: Unpacked,
        name: str,
        account: tuple[str, str],
        arguments: Sequence[str],
        variables: Mapping[str, str],
        mounts: Mapping[str, Path],
    ) -> Container:
        address = urlsplit(self._reached()["server"])
        token = self._folder / f"{name}.account"
        token.mkdir()
        for file, content in {
            "token": self._token(account).encode(),
            "namespace": account[0].encode(),
            "ca.crt": base64.b64decode(self._reached()["certificate-authority-data"]),
        }.items():
            (token / file).write_bytes(content)
        place = {
            "KUBERNETES_SERVICE_HOST": str(address.hostname),
            "KUBERNETES_SERVICE_PORT": str(address.port),
        }
        return Container(
            name,
            image,
            arguments,
            folder=self._folder,
            variables={**place, **variables},
            mounts={TOKENS: token, **mounts},
        )

    def _token(self, account: tuple[str, str]) -> str:
        return self._cluster.kubectl("-n", account[0], "create", "token", account[1], "--duration=1h").strip()

    def _reached(self) -> Mapping[str, Any]:
        """How the API server is."""
        view = yaml.safe_load(self._cluster.kubectl("config", "view", "--raw", "--flatten", "--minify"))
        found: Mapping[str, Any] = view["clusters"][0]["cluster"]
        return found

    def _kubeconfig(self, account: tuple[str, str], file: Path) -> Path:
        """With a token of the service account, and nothing else."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": self._reached()}],
            "users": [{"name": "u", "user": {"token": self._token(account)}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(json.dumps(document))
        file.chmod(0o600)
        return file


class _Contained:
    """A container as a pod."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self.kill = container.remove

    @property
    def running(self) -> bool:
        return self._container.running

    def tail(self, lines: int = 20) -> str:
        return "\n".join(self._container.said().splitlines()[-lines:])

    def stop(self, grace: float) -> int:
        self._container.stop()
        wait_until(lambda: not self.running, grace, f"{self._container.name} ends")
        assert self._container.exit_code is not None
        return self._container.exit_code


def _value(variable: Mapping[str, Any], account: tuple[str, str]) -> str:
    """Of a variable, or of the one field that a pod here knows of itself."""
    if "value" in variable:
        return str(variable["value"])
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    return account[0]
