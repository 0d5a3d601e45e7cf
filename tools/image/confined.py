"""Starts a program as process 1 of a container: run by `unshare` in new namespaces, with settings in a JSON file.

The root file system is read-only, with /proc and a /dev with a few devices. What is mounted in it is also read-only.
The program has no capabilities, cannot gain any, and runs as an unprivileged user of this machine.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_DEVICES = ("full", "null", "random", "urandom", "zero")


def enter(root: Path, mounts: dict[str, str]) -> None:
    """Makes the folder this process's root. In a mount namespace of its own, as root."""
    for path, source in mounts.items():
        inside = root / path.lstrip("/")
        if Path(source).is_dir():
            inside.mkdir(parents=True, exist_ok=True)
        else:
            inside.touch()
    mount("--bind", str(root), str(root))
    mount("-t", "proc", "-o", "nosuid,nodev,noexec", "proc", str(root / "proc"))
    mount("-t", "tmpfs", "-o", "nosuid,noexec,mode=755", "tmpfs", str(root / "dev"))
    for name in _DEVICES:
        (root / "dev" / name).touch()
        mount("--bind", f"/dev/{name}", str(root / "dev" / name))
    for path, source in mounts.items():
        mount("--bind", source, str(root / path.lstrip("/")))
        mount("-o", "remount,bind,ro,nosuid,nodev,noexec", str(root / path.lstrip("/")))
    for sealed in (root / "dev", root):
        mount("-o", "remount,bind,ro", str(sealed))
    os.chroot(root)
    os.chdir("/")


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)  # noqa: S603, S607 - util-linux


def give_up_rights(user: int) -> None:
    """Drops all privileges for good: even a setuid-root program cannot regain them."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
        _check(libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)  # takes the capabilities of root with it
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(settings: dict[str, Any]) -> None:
    if os.getpid() != 1:
        sys.exit("confined.py is started by unshare, in a PID namespace of its own")
    socket.sethostname(settings["name"])
    enter(Path(settings["root"]), settings["mounts"])
    give_up_rights(settings["user"])
    os.execve(settings["command"][0], settings["command"], settings["variables"])  # noqa: S606 - no shell


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
