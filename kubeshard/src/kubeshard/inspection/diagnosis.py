"""What an examination of an installation says: what is wrong, and what could not be examined."""

from __future__ import annotations

import msgspec

from kubeshard.inspection.status import Severity


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong, and the command that fixes it or, if none can (`fixes`), shows its cause."""

    part: str
    """What was examined, such as `rights` or `webhook of ring backups`."""
    severity: Severity
    problem: str
    command: str
    fixes: bool = True


class Unchecked(msgspec.Struct, frozen=True):
    """A part that could not be examined, or not completely, and why."""

    part: str
    reason: str


class Diagnosis(msgspec.Struct, frozen=True):
    """`examined` are all parts, in order."""

    namespace: str
    """Where the sharder runs."""
    examined: list[str]
    findings: list[Finding]
    unchecked: list[Unchecked]

    @property
    def exit_code(self) -> int:
        """2 if something is broken, 1 if somebody should know something, otherwise 0."""
        severities = {finding.severity for finding in self.findings}
        return 2 if "error" in severities else 1 if severities else 0
