"""Runs tests on Python versions other than the one that runs this program: `make test-pythons`.

    python tools/test_pythons.py 3.11.2 3.13 -- -m "not kube" tests

A version is a release, or a minor version, of which the newest release is taken. Interpreters are searched on PATH
(`python3.13`) and in pyenv. Each one gets its own virtual environment in the repository, such as `.venv-3.13`, with the
locked dependencies; it is kept. Arguments after `--` are passed to pytest.

A missing interpreter is reported but is not a failure; `--missing` only prints the missing ones.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_INSTALLED_FROM = (
    "requirements.txt",
    "kubeshard/pyproject.toml",
    "apiserver/pyproject.toml",
    "lab/pyproject.toml",
)


def interpreter(version: str) -> str | None:
    """The path of that release, or of the newest of that minor version."""
    matching = {
        release: path
        for path in _installed(".".join(version.split(".")[:2]))
        if f"{(release := _release(path))}.".startswith(f"{version}.")
    }
    return matching[max(matching, key=_order)] if matching else None


def _installed(minor: str) -> Iterator[str]:
    """pyenv's shims are on PATH for every version, but work only for active ones."""
    name = f"python{minor}"
    for folder in os.get_exec_path():
        if Path(folder).name != "shims" and (found := shutil.which(name, path=folder)):
            yield found
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from map(str, versions.glob(f"{minor}.*/bin/{name}"))


def _release(python: str) -> str:
    program = "import platform; print(platform.python_version())"
    return subprocess.run((python, "-c", program), check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))


def environment(version: str, python: str) -> Path:
    """The interpreter of its virtual environment, which is recreated if the locked dependencies have changed."""
    folder = ROOT / f".venv-{version}"
    stamp = folder / ".installed"
    digest = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in _INSTALLED_FROM)).hexdigest()
    made = folder / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == digest:
        return made
    print(f"installing locked dependencies into {folder.name}", flush=True)
    _run(python, "-m", "venv", "--clear", "--without-pip", str(folder))
    install = (sys.executable, "-m", "pip", "--python", str(made), "install", "--quiet")
    _run(*install, "--require-hashes", "--requirement", str(ROOT / "requirements.txt"))
    _run(
        *install,
        "--no-deps",
        "--no-build-isolation",
        "--editable",
        str(ROOT / "kubeshard"),
        "--editable",
        str(ROOT / "apiserver"),
        "--editable",
        str(ROOT / "lab"),
    )
    stamp.write_text(digest)
    return made


def _run(*command: str) -> None:
    subprocess.run(command, check=True)  # noqa: S603 - venv and pip


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs tests on other Pythons.")
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--missing", action="store_true", help="only print the ones that this machine lacks")
    ours = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(ours)
    pytest = sys.argv[len(ours) + 2 :]
    found = {version: interpreter(version) for version in options.versions}
    if options.missing:
        print(*(version for version, python in found.items() if python is None))
        return
    ended: dict[str, str] = {}
    for version, python in found.items():
        print(f"\n--- Python {version}", flush=True)
        if python is None:
            ended[version] = f"NOT RUN: there is no Python {version} on PATH or in pyenv"
            continue
        command = [str(environment(version, python)), "-m", "pytest", *pytest]
        tested = subprocess.run(command, cwd=ROOT, check=False)  # noqa: S603
        ended[version] = "ok" if tested.returncode == 0 else f"FAILED (exit code {tested.returncode})"
    print("\n".join(f"Python {version}: {how}" for version, how in ended.items()))
    sys.exit(any(how.startswith("FAILED") for how in ended.values()))


if __name__ == "__main__":
    main()
