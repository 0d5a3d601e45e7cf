"""Runs the image as a container without Docker: unpacked, and confined like a pod of the Pod Security level
*restricted*.

What a kubelet and its runtime do differently: a separate network, a seccomp profile, cgroups with limits, and a
writable /dev/shm.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from image import confined
from image.content import USER
from image.layout import Described, describe, umoci
from kubeshard_apiserver.testing.child import Child

TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
_NAMESPACES = ("--mount", "--pid", "--ipc", "--uts")


class Unpacked:
    """The image's files in `rootfs` of a new folder, and its configuration."""

    def __init__(self, layout: Path, tag: str, bundle: Path) -> None:
        """Raises CalledProcessError, also if the image's files do not match their digests."""
        umoci("unpack", "--image", f"{layout}:{tag}", str(bundle))
        self.root = bundle / "rootfs"
        self.image: Described = describe(layout)


class Container:
    """A container of an unpacked image. It ends with this process at the latest."""

    def __init__(
        self,
        name: str,
        unpacked: Unpacked,
        arguments: Sequence[str],
        *,
        folder: Path,
        variables: Mapping[str, str],
        mounts: Mapping[str, Path],
        entry_point: Sequence[str] = (),
    ) -> None:
        """`mounts`: files by path, read-only. `folder`: settings and log. `entry_point`: not the image's."""
        config = unpacked.image.config["config"]
        user, _, group = config["User"].partition(":")
        settings = {
            "name": name,
            "root": str(unpacked.root),
            "mounts": {path: str(source) for path, source in mounts.items()},
            "user": int(user),
            "command": [*(entry_point or config["Entrypoint"]), *(arguments or config["Cmd"])],
            "variables": {
                **dict(each.split("=", 1) for each in config["Env"]),
                "HOSTNAME": name,
                **variables,
            },
        }
        if user != group or int(user) != USER:
            raise AssertionError(f"the image runs as {config['User']}")
        file = folder / f"{name}.json"
        file.write_text(json.dumps(settings))
        inside = (sys.executable, "-I", str(confined.__file__), str(file))
        command = ["unshare", *_NAMESPACES, "--fork", "--kill-child", *inside]
        self.name = name
        self._program = Child(name, command, folder / f"{name}.log")

    @property
    def running(self) -> bool:
        return self._program.running

    @property
    def exit_code(self) -> int | None:
        return self._program.exit_code

    def said(self) -> str:
        """The end of its output."""
        return self._program.tail(40)

    @property
    def first(self) -> int:
        """The process ID that its process 1 has on this machine."""
        (child,) = children(self._program.pid)
        return child

    def stop(self) -> None:
        """Sends SIGTERM to its process 1, as a kubelet does."""
        os.kill(self.first, signal.SIGTERM)

    def asks(self, program: str) -> str:
        """The output of a Python program that runs in the container as the container's user."""
        place = ("--target", str(self.first), *_NAMESPACES, "--root", "--wd")
        user = ("--setuid", str(USER), "--setgid", str(USER))
        python = ("/usr/bin/python3", "-I", "-c", program)
        return subprocess.run(  # noqa: S603 - util-linux and the image's Python
            ["nsenter", *place, *user, *python],  # noqa: S607
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout

    def remove(self) -> None:
        self._program.kill()


def children(process: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
