"""What RBAC rules allow, and which rules cover others. Pure.

Source: k8s.io/kubernetes `pkg/apis/rbac/v1`, `pkg/registry/rbac/validation`; k8s.io/component-helpers
`auth/rbac/validation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kubeshard_apiserver.access.authorizer import Attributes, Rule
from kubeshard_apiserver.status import shown

EVERYTHING: Sequence[Rule] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


def allows(rule: Rule, attributes: Attributes) -> bool:
    if not _has(rule, "verbs", attributes.verb):
        return False
    if not attributes.about_resource:
        return any(_url_covers(url, attributes.path) for url in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    return (
        _has(rule, "apiGroups", attributes.group)
        and _has_resource(rule, attributes.combined)
        and (not names or attributes.name in names)
    )


def missing(held: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return the atoms of `wanted` (one verb each) that no single rule of `held` covers."""
    held = list(held)
    return [
        atom for rule in wanted for atom in _atoms(rule) if not any(_covers(other, atom) for other in held)
    ]


def described(rules: Iterable[Rule]) -> list[str]:
    """Format rules as error messages list them: sorted, and merged if they differ only in their verb."""
    merged: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    alone: list[Rule] = []
    for rule in rules:
        if rule.get("nonResourceURLs"):
            alone.append(rule)
        else:
            named = tuple(
                tuple(rule.get(field) or ()) for field in ("apiGroups", "resources", "resourceNames")
            )
            merged.setdefault(named, []).extend(rule["verbs"])
    for (groups, resources, names), verbs in merged.items():
        alone.append({"apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs})
    return sorted({_described(rule) for rule in alone})


def quoted(texts: Iterable[str]) -> str:
    """Format a list of strings as Go prints it."""
    return f"[{' '.join(map(shown, texts))}]"


_FIELDS = {
    "APIGroups": "apiGroups",
    "Resources": "resources",
    "NonResourceURLs": "nonResourceURLs",
    "ResourceNames": "resourceNames",
    "Verbs": "verbs",
}


def _described(rule: Rule) -> str:
    parts = [f"{title}:{quoted(rule[field])}" for title, field in _FIELDS.items() if rule.get(field)]
    return f"{{{', '.join(parts)}}}"


def _atoms(rule: Rule) -> Iterator[Rule]:
    names = [{"resourceNames": [name]} for name in rule.get("resourceNames") or ()] or [{}]
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                for name in names:
                    yield {"apiGroups": [group], "resources": [resource], "verbs": [verb], **name}
    for url in rule.get("nonResourceURLs") or ():
        for verb in verbs:
            yield {"nonResourceURLs": [url], "verbs": [verb]}


def _covers(rule: Rule, atom: Rule) -> bool:
    if not _has(rule, "verbs", atom["verbs"][0]):
        return False
    if urls := atom.get("nonResourceURLs"):
        return any(_url_covers(url, urls[0]) for url in rule.get("nonResourceURLs") or ())
    names, wanted = rule.get("resourceNames"), atom.get("resourceNames")
    return (
        _has(rule, "apiGroups", atom["apiGroups"][0])
        and _has_resource(rule, atom["resources"][0])
        and (not names or bool(wanted and wanted[0] in names))
    )


def _has(rule: Rule, field: str, value: str) -> bool:
    values = rule.get(field) or ()
    return value in values or "*" in values


def _has_resource(rule: Rule, resource: str) -> bool:
    """Report whether the rule names the resource; `*/scale` is that subresource of every resource."""
    if _has(rule, "resources", resource):
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in (rule.get("resources") or ())


def _url_covers(url: str, path: str) -> bool:
    return url == path or (url.endswith("*") and path.startswith(url.rstrip("*")))
