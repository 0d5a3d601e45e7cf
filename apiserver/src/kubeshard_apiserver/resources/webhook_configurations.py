"""MutatingWebhookConfiguration and ValidatingWebhookConfiguration: defaults and validation.

Source: k8s.io/kubernetes `pkg/apis/admissionregistration/validation`.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from kubeshard_apiserver.objects import JsonObject, Object, own, own_items
from kubeshard_apiserver.resources.admission_rules import (
    NAMES,
    condition_errors,
    default_matching,
    default_scopes,
    rule_errors,
)
from kubeshard_apiserver.resources.field_rules import field_rule_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.name_formats import dns_1035_label, dns_subdomain, wrong
from kubeshard_apiserver.status import FieldError, duplicate, invalid_value, required

_KNOWN_VERSIONS = ("v1", "v1beta1")


class WebhookConfigurations(Typed):
    def set_defaults(self, obj: Object) -> None:
        for webhook in own_items(obj, "webhooks"):
            webhook.setdefault("failurePolicy", "Fail")
            default_matching(webhook)
            default_scopes(webhook, "rules")
            if webhook.get("timeoutSeconds") is None:
                webhook["timeoutSeconds"] = 10
            if self.kind.kind.startswith("Mutating"):
                webhook.setdefault("reinvocationPolicy", "Never")
            if service := own(webhook, "clientConfig", "service"):
                service.setdefault("port", 443)

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        names: set[str] = set()
        for index, webhook in enumerate(obj.get("webhooks") or ()):
            path, name = f"webhooks[{index}]", webhook.get("name") or ""
            errors += _webhook_errors(path, webhook)
            if name and name in names:
                errors.append(duplicate(f"{path}.name", name))
            names.add(name)
        return errors


def _webhook_errors(path: str, webhook: JsonObject) -> list[FieldError]:
    errors = _name_errors(f"{path}.name", webhook.get("name") or "")
    errors += rule_errors(f"{path}.rules", webhook.get("rules"))
    errors += field_rule_errors("admissionregistration.v1.MutatingWebhook", path, webhook)
    errors += client_errors(f"{path}.clientConfig", webhook.get("clientConfig") or {})
    errors += condition_errors(f"{path}.matchConditions", webhook.get("matchConditions"), NAMES)
    versions = webhook.get("admissionReviewVersions") or []
    return errors + review_version_errors(f"{path}.admissionReviewVersions", versions)


def _name_errors(path: str, name: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    if errors := wrong(path, name, dns_subdomain):
        return errors
    if name.count(".") < 2:
        problem = "should be a domain with at least three segments separated by dots"
        return [invalid_value(path, name, problem)]
    return []


def review_version_errors(path: str, versions: list[str]) -> list[FieldError]:
    if not versions:
        return [required(path, f"must specify one of {', '.join(_KNOWN_VERSIONS)}")]
    errors = []
    for index, version in enumerate(versions):
        errors += wrong(f"{path}[{index}]", version, dns_1035_label)
        if version in versions[:index]:
            errors.append(invalid_value(f"{path}[{index}]", version, "duplicate version"))
    if not set(versions) & set(_KNOWN_VERSIONS):
        problem = f"must include at least one of {', '.join(_KNOWN_VERSIONS)}"
        errors.append(invalid_value(path, versions, problem))
    return errors


def client_errors(path: str, client: JsonObject) -> list[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    if service is not None:
        return _service_errors(f"{path}.service", service)
    return _url_errors(f"{path}.url", url or "")


def _url_errors(path: str, url: str) -> list[FieldError]:
    form = "; desired format: https://host[/path]"
    if url.startswith(":"):
        problem = f'url must be a valid URL: parse "{url}": missing protocol scheme{form}'
        return [required(path, problem)]
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    found: list[tuple[Any, str]] = []
    if parts.scheme != "https":
        found.append((parts.scheme, f"'https' is the only allowed URL scheme{form}"))
    if not host:
        found.append((host, f"host must be specified{form}"))
    if user:
        found.append((user, "user information is not permitted in the URL"))
    if parts.fragment:
        found.append((parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        found.append((parts.query, "query parameters are not permitted in the URL"))
    return [invalid_value(path, value, problem) for value, problem in found]


def _service_errors(path: str, service: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("admissionregistration.v1.ServiceReference", path, service)
    return errors + _path_errors(f"{path}.path", service.get("path") or "/")


def _path_errors(path: str, given: str) -> list[FieldError]:
    if given == "/":
        return []
    errors = [] if given.startswith("/") else [invalid_value(path, given, "must start with a '/'")]
    for index, segment in enumerate(given[1:].removesuffix("/").split("/")):
        if not segment:
            errors.append(invalid_value(path, given, f"segment[{index}] may not be empty"))
            continue
        errors += [
            invalid_value(path, given, f"segment[{index}]: {problem}") for problem in dns_subdomain(segment)
        ]
    return errors
