"""A bill of materials of an environment, as CycloneDX JSON: what is installed, not what was requested."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import Distribution
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from distribution.licences import named


def bill_of(subject: Distribution, others: Iterable[Distribution], *, wheel_digest: str, epoch: int) -> str:
    """What is installed with it. Reproducible: the serial number is from the digest, the time is given."""
    found = {canonicalize_name(it.name): it for it in (subject, *others)}
    parts = {name: _component(it) for name, it in found.items()}
    root = parts.pop(canonicalize_name(subject.name))
    root.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=wheel_digest))
    bill = Bom(components=parts.values(), serial_number=uuid5(NAMESPACE_URL, f"{root.purl}#{wheel_digest}"))
    bill.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bill.metadata.component = root
    every = {canonicalize_name(subject.name): root, **parts}
    for name, component in every.items():
        needs = [Dependency(every[each].bom_ref) for each in _needed(found[name]) & every.keys()]
        bill.dependencies.add(Dependency(component.bom_ref, needs))
    text: str = make_outputter(bill, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    return text + "\n"


def _component(distribution: Distribution) -> Component:
    name, version = canonicalize_name(distribution.name), distribution.version
    purl = PackageURL("pypi", name=name, version=version)
    licence = named(distribution)
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        purl=purl,
        bom_ref=str(purl),
        description=distribution.metadata["Summary"],
        licenses=[LicenseFactory().make_from_string(licence)] if licence else [],
    )


def _needed(distribution: Distribution) -> set[NormalizedName]:
    """The names of its requirements in this environment, without extras."""
    asked = map(Requirement, distribution.requires or ())
    return {
        canonicalize_name(it.name) for it in asked if it.marker is None or it.marker.evaluate({"extra": ""})
    }
