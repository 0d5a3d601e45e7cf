"""What a request wants to do, in the words of authorization: a verb on a resource, or on a path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attributes:
    """Of a path that names no resource, `verb` is the HTTP method in lower case and `resource` is empty."""

    verb: str
    path: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def about_resource(self) -> bool:
        """A review may ask about a resource without a name; it has no path then."""
        return bool(self.resource) or not self.path

    @property
    def combined(self) -> str:
        """The resource as rules name it: `pods`, or `pods/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource
