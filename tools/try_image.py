"""Makes the image again, which has to be the same bits, and runs its sharder and a shard as containers against a real
kube-apiserver: `make test-image`.

The sharder gets what the rendered manifests give its pod: arguments, configuration, user, its service account's token,
and only the rights of the rendered roles. Every passed check is printed; the first failure ends the run with exit code
1.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import yaml

from distribution.building import source_date_epoch
from image.containers import TOKENS, Container, Unpacked, children
from image.content import USER
from image.layout import describe
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues, chosen
from kubeshard.version import __version__
from kubeshard_apiserver.testing import ControlPlane
from kubeshard_apiserver.testing.control_plane import free_port, wait_until
from make_image import IMAGE, make_image, missing

NAMESPACE = "sharding-system"
RING = {
    "apiVersion": "sharding.timebertt.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": "checksum-controller"},
    "spec": {
        "resources": [
            {
                "group": "",
                "resource": "secrets",
                "controlledResources": [{"group": "", "resource": "configmaps"}],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    },
}
LABEL = "shard.alpha.sharding.timebertt.dev/checksum-controller"
SHARD = "shard-a"
LEASE_SECONDS = 15
"""The duration of a shard's Lease."""

WRITES = """
import os
made = []
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders.remove("proc")  # files of the kernel about its processes
    for path in (os.path.join(folder, "written"), *(os.path.join(folder, file) for file in files)):
        try:
            os.close(os.open(path, os.O_WRONLY | (os.O_CREAT if path.endswith("/written") else 0)))
        except OSError:
            continue
        if not os.path.realpath(path).startswith("/dev/"):
            made.append(path)
print("\\n".join(made))
"""


class Cluster:
    """A control plane, and the pod that a kubelet would create from the rendered Deployment."""

    def __init__(self, kube: ControlPlane, unpacked: Unpacked, folder: Path) -> None:
        self._kube = kube
        self._unpacked = unpacked
        self._folder = folder
        self._health = free_port()
        webhook = f"127.0.0.1:{free_port()}"
        config = {
            "webhook": {
                "server": {"bindAddress": webhook},
                "config": {"clientConfig": {"url": f"https://{webhook}/"}},
            },
            "health": {"bindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
        }
        # The policies are about the Service, to which nothing routes here.
        values = {"config": config, "policies": {"enabled": False}}
        self._objects = sharder_objects(chosen(SharderValues, values))

    def install(self) -> None:
        """The sharder, its ring, and an account for a shard that may do anything: other tests check its rights."""
        self._apply(self._objects)
        self._kube.kubectl(
            "wait", "--for=condition=Established", "crd/controllerrings.sharding.timebertt.dev"
        )
        self._apply(list(ring_objects(RING, (NAMESPACE, "sharder"))))
        self._kube.kubectl("create", "serviceaccount", "shard")
        rights = ("--clusterrole=cluster-admin", "--serviceaccount=default:shard")
        self._kube.kubectl("create", "clusterrolebinding", "shard", *rights)

    def sharder(self) -> AbstractContextManager[Container]:
        (deployment,) = (it for it in self._objects if it["kind"] == "Deployment")
        (rendered,) = deployment["spec"]["template"]["spec"]["containers"]
        expect(rendered["command"] == ["kubeshard"], f"the pod starts {rendered['command']}")
        (config,) = (it for it in self._objects if it["kind"] == "ConfigMap")
        file = self._folder / "config.yaml"
        file.write_text(config["data"]["config"])
        return self._container("sharder-a", (NAMESPACE, "sharder"), rendered["args"], {"/config.yaml": file})

    def shard(self) -> AbstractContextManager[Container]:
        return self._container(
            SHARD,
            ("default", "shard"),
            ["kubeshard_lab.examples.checksum"],
            {},
            ("/usr/bin/python3", "-I", "-m"),
        )

    @contextmanager
    def _container(
        self,
        name: str,
        account: tuple[str, str],
        arguments: list[str],
        mounts: dict[str, Path],
        entry_point: tuple[str, ...] = (),
    ) -> Iterator[Container]:
        address = urlsplit(self._kube.url)
        container = Container(
            name,
            self._unpacked,
            arguments,
            folder=self._folder,
            variables={
                "KUBERNETES_SERVICE_HOST": str(address.hostname),
                "KUBERNETES_SERVICE_PORT": str(address.port),
            },
            mounts={TOKENS: self._credentials(*account), **mounts},
            entry_point=entry_point,
        )
        try:
            yield container
        except BaseException:
            print(container.said(), file=sys.stderr)
            raise
        finally:
            container.remove()

    def _credentials(self, namespace: str, name: str) -> Path:
        """The files that a kubelet mounts into pods of a service account."""
        folder = self._folder / f"{namespace}-{name}"
        folder.mkdir()
        view = json.loads(self._kube.kubectl("config", "view", "--raw", "--flatten", "--output=json"))
        authority = base64.b64decode(view["clusters"][0]["cluster"]["certificate-authority-data"])
        token = self._kube.kubectl("create", "token", name, "--namespace", namespace).strip()
        for file, content in (
            ("token", token.encode()),
            ("namespace", namespace.encode()),
            ("ca.crt", authority),
        ):
            (folder / file).write_bytes(content)
        return folder

    def ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self._health}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def create_secret(self, name: str) -> str | None:
        """Creates a Secret and returns the shard in the response."""
        self._kube.kubectl("delete", "secret", name, "--ignore-not-found")
        answer = self._kube.kubectl("create", "secret", "generic", name, "--output=json")
        return shard_in(json.loads(answer))

    def shard_of(self, name: str) -> str | None:
        return shard_in(json.loads(self._kube.kubectl("get", "secret", name, "--output=json")))

    def reconciled(self, name: str) -> bool:
        return bool(self._kube.kubectl("get", "configmap", f"checksums-{name}", "--ignore-not-found"))

    def leader(self) -> str:
        lease = self._kube.kubectl("get", "lease", "sharder", "--namespace", NAMESPACE, "--output=json")
        return str(json.loads(lease)["spec"].get("holderIdentity") or "")

    def _apply(self, objects: list[dict[str, Any]]) -> None:
        self._kube.kubectl("apply", "--server-side", "--filename=-", input=yaml.safe_dump_all(objects))


def shard_in(secret: dict[str, Any]) -> str | None:
    found: str | None = secret["metadata"].get("labels", {}).get(LABEL)
    return found


def expect(true: bool, otherwise: str) -> None:
    if not true:
        raise AssertionError(otherwise)


def until(container: Container, condition: Callable[[], bool], what: str, within: float = 60.0) -> None:
    wait_until(lambda: condition() or not container.running, within, what)
    expect(container.running, f"{container.name} ended with {container.exit_code} instead of {what}")


def check_process_one(container: Container) -> int:
    """Checks that process 1 is the init and the sharder its child. Returns the child's process ID on this machine."""
    first = container.first
    command = Path(f"/proc/{first}/cmdline").read_text().split("\0")
    expect(any(part.endswith("/init_process.py") for part in command), f"process 1 is {command}")
    (child,) = children(first)
    for pid in (first, child):
        status = Path(f"/proc/{pid}/status").read_text()
        held = set(re.findall(r"^Cap(?:Inh|Prm|Eff|Bnd|Amb):\t(\w+)$", status, re.M))
        expect(held == {"0" * 16}, f"process {pid} has capabilities: {held}")
        users = re.search(r"^Uid:\t(.+)$", status, re.M)
        expect(users is not None and users[1].split() == [str(USER)] * 4, f"process {pid} is not user {USER}")
        expect("NoNewPrivs:\t1\n" in status, f"process {pid} may get new privileges")
    return child


def holds(what: str) -> None:
    print(f"ok  {what}", flush=True)


def check_twice(folder: Path) -> None:
    """Makes the image once more, elsewhere and under another umask, and compares."""
    again, place = folder / "again", folder / "place"
    place.mkdir()
    before = os.umask(0o077)
    try:
        make_image(again, source_date_epoch(), place)
    finally:
        os.umask(before)
    one, other = describe(IMAGE).digest, describe(again).digest
    expect(one == other, f"made twice, the image is {one} and {other}")
    holds("made twice, it is the same image, bit by bit")


def try_image(folder: Path) -> None:
    unpacked = Unpacked(IMAGE, __version__, folder / "bundle")
    with ControlPlane() as kube:
        cluster = Cluster(kube, unpacked, folder)
        cluster.install()
        cluster.create_secret("before")
        with cluster.sharder() as sharder:
            until(sharder, cluster.ready, "readiness")
            holds("the sharder is ready, with the rendered arguments, configuration, token and roles")
            check_process_one(sharder)
            holds(f"it is user {USER} without capabilities or a way to get some, below an init as process 1")
            written = sharder.asks(WRITES).split()
            expect(not written, f"the container wrote {written}")
            holds("it can write nowhere")
            with cluster.shard() as shard:
                until(shard, lambda: cluster.shard_of("before") == SHARD, "the assignment of a Secret")
                until(shard, lambda: cluster.reconciled("before"), "the work of the shard")
                holds("a shard of the image gets an object that was there, and does its work")
                until(sharder, lambda: cluster.create_secret("after") == SHARD, "an answer of the webhook")
                holds("a new object is assigned by the webhook")
                os.kill(check_process_one(shard), signal.SIGSTOP)
                wait_until(lambda: not shard.running, LEASE_SECONDS, "the end of the stopped shard")
                expect(shard.exit_code == 137, f"the stopped shard ended with {shard.exit_code}")
                holds("a shard stopped by SIGSTOP is killed by the kernel before its Lease is over")
            expect(cluster.leader().startswith(sharder.name), f"{cluster.leader()} leads")
            sharder.stop()
            wait_until(lambda: not sharder.running, 30, "the end after SIGTERM")
            expect(sharder.exit_code == 0, f"after SIGTERM it ended with {sharder.exit_code}")
            expect(not cluster.leader(), f"{cluster.leader()} still leads")
            holds("SIGTERM to process 1 ends the sharder in order, with its Lease given back")


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lacks = missing("mmdebstrap", "dpkg-deb", "umoci", "unshare", "nsenter")
    if lacks:
        sys.exit(f"cannot try the image: {lacks}")
    if not IMAGE.exists():
        sys.exit("cannot try the image: there is none; run `make image`")
    began = time.monotonic()
    with TemporaryDirectory(prefix="kubeshard-image-") as folder:
        try:
            check_twice(Path(folder))
            try_image(Path(folder))
        except (AssertionError, TimeoutError) as error:
            sys.exit(f"FAILED: {error}")
    print(f"the image passed all checks ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
