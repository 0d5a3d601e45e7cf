"""The licences of all dependencies, as the installed distributions state them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

_RULE = "=" * 79


class NoLicence(Exception):
    """A distribution states its licence neither in a metadata field nor in a file."""


def licences(site_packages: Path, *, ours: Iterable[str]) -> str:
    """A page with name, version, licence and licence texts of all distributions there except ours. Raises NoLicence."""
    left_out = set(ours)
    found = installed(site_packages)
    others = [found[name] for name in sorted(found.keys() - left_out)]
    overview = [f"{it.name} {it.version}: {stated(it)}" for it in others]
    texts = [
        f"{_RULE}\n{it.name} {it.version}\n{_RULE}\n\n{text.strip()}\n"
        for it in others
        for text in texts_of(it)
    ]
    return "\n".join([*overview, "", *texts])


def installed(site_packages: Path) -> dict[str, Distribution]:
    """The installed distributions by normalized name."""
    return {canonicalize_name(it.name): it for it in distributions(path=[str(site_packages)])}


def stated(distribution: Distribution) -> str:
    """How the page names its licence. Raises NoLicence."""
    found = named(distribution)
    if not found and not list(texts_of(distribution)):
        raise NoLicence(
            f"{distribution.name} {distribution.version} names no licence: look it up before it ships"
        )
    return found or "see below"


def named(distribution: Distribution) -> str:
    """The licence that the metadata states, from the most precise field; empty if only files state it."""
    (expression, old) = (
        next(iter(distribution.metadata.get_all(field) or ()), "")
        for field in ("License-Expression", "License")
    )
    classified = [
        line.rpartition(" :: ")[2]
        for line in distribution.metadata.get_all("Classifier") or ()
        if line.startswith("License ::") and line != "License :: OSI Approved"
    ]
    # Some have the whole text in the old field.
    short = old.strip() if len(old.strip().splitlines()) == 1 else ""
    return expression or short or ", ".join(classified)


def texts_of(distribution: Distribution) -> Iterator[str]:
    """The texts of the licence files that the metadata names, wherever installers put them."""
    for name in sorted(distribution.metadata.get_all("License-File") or ()):
        for folder in ("licenses/", ""):
            text = distribution.read_text(folder + name)
            if text is not None:
                yield text
                break
