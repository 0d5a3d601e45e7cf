"""Validation of the specs and statuses of Jobs. Source: k8s.io/kubernetes `pkg/apis/batch/validation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.resources.facts import fact_errors
from kubeshard_apiserver.resources.pod_names import dns_subdomain, wrong
from kubeshard_apiserver.resources.pod_rules import template_errors
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported,
)

Given = Mapping[str, Any]
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_MOST_PARALLEL, _MOST_EXIT_CODES, _LONGEST_MANAGER = 100_000, 255, 63
_TERMINAL = ("Failed", "Complete", "FailureTarget")


def job_spec_errors(path: str, spec: Given) -> list[FieldError]:
    errors = fact_errors("batch.v1.JobSpec", path, spec)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        problem = "when maxFailedIndexes is specified"
        errors.append(required(f"{path}.backoffLimitPerIndex", problem))
    if (manager := spec.get("managedBy")) is not None:
        errors += _manager_errors(f"{path}.managedBy", manager)
    errors += _mode_errors(path, spec)
    policy, replacement = spec.get("podFailurePolicy"), spec.get("podReplacementPolicy")
    if policy is not None:
        errors += _failure_policy_errors(f"{path}.podFailurePolicy", policy, spec)
    known = _REPLACEMENTS if policy is None else _REPLACEMENTS[:1]
    if replacement not in (None, *known):
        errors.append(unsupported(f"{path}.podReplacementPolicy", replacement, known))
    errors += template_errors(f"{path}.template", spec["template"])
    return errors + _restart_errors(f"{path}.template.spec.restartPolicy", spec)


def job_status_errors(new: Given, old: Given) -> list[FieldError]:
    status, before, spec = new["status"], old["status"], new["spec"]
    errors = fact_errors("batch.v1.JobStatus", "status", status)
    done, failed = _holds(status, "Complete"), _holds(status, "Failed")
    met, target = _holds(status, "SuccessCriteriaMet"), _holds(status, "FailureTarget")
    ended, started = status.get("completionTime"), status.get("startTime")
    conditions: list[str] = []
    if done and failed:
        conditions.append("cannot set Complete=True and Failed=true conditions")
    if done and target:
        conditions.append("cannot set Complete=True and FailureTarget=true conditions")
    if ended is not None and not done:
        problem = "cannot set completionTime when there is no Complete=True condition"
        errors.append(invalid_value("status.completionTime", ended, problem))
    if ended is None and done:
        problem = "completionTime is required for Complete jobs"
        errors.append(required("status.completionTime", problem))
    if started and ended and ended < started:
        problem = "must be equal to or after `startTime`"
        errors.append(invalid_value("status.completionTime", ended, problem))
    if failed and not target:
        conditions.append("cannot set Failed=True condition without the FailureTarget=true condition")
    if done and not met:
        conditions.append("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if done or failed:
        errors += _finished_errors(status, idle=bool(spec.get("suspend")) and spec.get("completions") == 0)
    if (ready := status.get("ready")) is not None and ready > status.get("active", 0):
        errors.append(invalid_value("status.ready", ready, "cannot set more ready pods than active"))
    if met and failed:
        conditions.append("cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if met and target:
        conditions.append("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    conditions += [
        f"cannot disable the terminal {kind}=True condition"
        for kind in _TERMINAL
        if _holds(before, kind) and not _holds(status, kind)
    ]
    if _holds(before, "SuccessCriteriaMet") and not met:
        conditions.append("cannot disable the SuccessCriteriaMet=True condition")
    errors += [_without_value("status.conditions", problem) for problem in conditions]
    for counter in ("failed", "succeeded"):
        if status.get(counter, 0) < before.get(counter, 0) and not _scales_down(counter, spec):
            problem = f"cannot decrease the {counter} counter"
            errors.append(invalid_value(f"status.{counter}", status.get(counter, 0), problem))
    return errors + _time_errors(new, old)


def _time_errors(new: Given, old: Given) -> list[FieldError]:
    after, before, errors = new["status"], old["status"], []
    ended, started = after.get("completionTime"), after.get("startTime")
    if ended and before.get("completionTime") not in (None, ended):
        errors.append(invalid_value("status.completionTime", ended, "field is immutable"))
    if before.get("startTime") not in (None, started) and not new["spec"].get("suspend"):
        problem = "field is immutable for unsuspended job once set"
        errors.append(invalid_value("status.startTime", started, problem))
    return errors


def _finished_errors(status: Given, *, idle: bool) -> list[FieldError]:
    errors = [
        invalid_value(f"status.{field}", status[field], f"{field}>0 is invalid for finished job")
        for field in ("active", "terminating")
        if status.get(field, 0) > 0
    ]
    if status.get("startTime") is None and not idle:
        errors.append(required("status.startTime", "startTime is required for finished job"))
    uncounted = status.get("uncountedTerminatedPods") or {}
    if any(uncounted.values()):
        at, problem = "status.uncountedTerminatedPods", "must be empty for finished job"
        errors.append(invalid_value(at, uncounted, problem))
    return errors


def _mode_errors(path: str, spec: Given) -> list[FieldError]:
    if errors := fact_errors("batch.v1.JobSpec#mode", path, spec):
        return errors
    failing, completions = spec.get("maxFailedIndexes"), spec.get("completions")
    if spec.get("completionMode") == "Indexed":
        if completions is None:
            errors.append(required(f"{path}.completions", "when completion mode is Indexed"))
        elif failing is not None and failing > completions:
            problem = "must be less than or equal to completions"
            errors.append(invalid_value(f"{path}.maxFailedIndexes", failing, problem))
        if (parallelism := spec.get("parallelism") or 0) > _MOST_PARALLEL:
            problem = f"must be less than or equal to {_MOST_PARALLEL} when completion mode is Indexed"
            errors.append(invalid_value(f"{path}.parallelism", parallelism, problem))
        return errors
    return [
        invalid_value(f"{path}.{field}", spec[field], "requires indexed completion mode")
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
        if spec.get(field) is not None
    ]


def _restart_errors(path: str, spec: Given) -> list[FieldError]:
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy in (None, "Always"):
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):
        return [unsupported(path, policy, ("OnFailure", "Never"))]
    if spec.get("podFailurePolicy") is not None and policy != "Never":
        problem = 'only "Never" is supported when podFailurePolicy is specified'
        return [invalid_value(path, policy, problem)]
    return []


def _manager_errors(path: str, manager: str) -> list[FieldError]:
    if not manager:
        return [required(path)]
    host, _, rest = manager.partition("/")
    errors = [too_long(path, _LONGEST_MANAGER)] if len(manager) > _LONGEST_MANAGER else []
    if not host or not rest:
        problem = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [invalid_value(path, manager, problem), *errors]
    return wrong(path, host, dns_subdomain) + errors


def _failure_policy_errors(path: str, policy: Given, spec: Given) -> list[FieldError]:
    errors = fact_errors("batch.v1.PodFailurePolicy", path, policy)
    pod = spec["template"]["spec"]
    names = {one.get("name") for field in ("containers", "initContainers") for one in pod.get(field) or ()}
    for index, rule in enumerate(policy.get("rules") or ()):
        at, action = f"{path}.rules[{index}]", rule.get("action", "")
        errors += fact_errors("batch.v1.PodFailurePolicyRule", at, rule)
        if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            problem = "requires the backoffLimitPerIndex to be set"
            errors.append(invalid_value(f"{at}.action", action, problem))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            errors += _exit_code_errors(f"{at}.onExitCodes", codes, names)
        errors += fact_errors("batch.v1.PodFailurePolicyRule#conditions", at, rule)
        if codes is not None and conditions:
            problem = "specifying both OnExitCodes and OnPodConditions is not supported"
            errors.append(_without_value(at, problem))
        if codes is None and not conditions:
            problem = "specifying one of OnExitCodes and OnPodConditions is required"
            errors.append(_without_value(at, problem))
    return errors


def _exit_code_errors(path: str, codes: Given, names: set[Any]) -> list[FieldError]:
    operator, values = codes.get("operator", ""), codes.get("values") or []
    errors = fact_errors("batch.v1.PodFailurePolicyOnExitCodesRequirement", path, codes)
    if (name := codes.get("containerName")) is not None and name not in names:
        problem = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid_value(f"{path}.containerName", name, problem))
    if not values:
        errors.append(invalid_value(f"{path}.values", values, "at least one value is required"))
    elif len(values) > _MOST_EXIT_CODES:
        errors.append(too_many(f"{path}.values", len(values), _MOST_EXIT_CODES))
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            problem = "must not be 0 for the In operator"
            errors.append(invalid_value(f"{path}.values[{index}]", value, problem))
        if value in values[:index]:
            errors.append(duplicate(f"{path}.values[{index}]", value))
    if values != sorted(values):
        errors.append(invalid_value(f"{path}.values", values, "must be ordered"))
    return errors


def _holds(status: Given, kind: str) -> bool:
    return any(
        condition.get("type") == kind and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _scales_down(counter: str, spec: Given) -> bool:
    """Report whether the counter may decrease because the Job can be scaled down."""
    indexed = spec.get("completionMode") == "Indexed"
    return counter == "succeeded" and indexed and spec.get("completions") == spec.get("parallelism")


def _without_value(path: str, problem: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {problem}")
