"""Jobs and CronJobs. Source: k8s.io/kubernetes `pkg/apis/batch`, `pkg/registry/batch`.

Not covered: success policies, and the indexes in the status of an indexed Job.
"""

from __future__ import annotations

from typing import Any

from kubeshard_apiserver.objects import JsonObject, Object, own, own_items
from kubeshard_apiserver.resources.cron_schedule import schedule_errors, time_zone_errors
from kubeshard_apiserver.resources.field_rules import changed_errors, field_rule_errors
from kubeshard_apiserver.resources.pod_defaults import default_template
from kubeshard_apiserver.resources.pod_rules import template_errors
from kubeshard_apiserver.resources.value_rules import label_selector_errors, selects
from kubeshard_apiserver.resources.workloads import (
    Workload,
    match_errors,
    shown_labels,
    shown_selector,
    unchanged_selector,
)
from kubeshard_apiserver.schema.name_formats import dns_label, dns_subdomain, wrong
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    immutable,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported,
)

_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_MOST_PARALLEL, _MOST_EXIT_CODES, _LONGEST_MANAGER = 100_000, 255, 63
_TERMINAL = ("Failed", "Complete", "FailureTarget")


def _job_spec_errors(path: str, spec: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("batch.v1.JobSpec", path, spec)
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


def _job_status_errors(new: JsonObject, old: JsonObject) -> list[FieldError]:
    status, before, spec = new["status"], old["status"], new["spec"]
    errors = field_rule_errors("batch.v1.JobStatus", "status", status)
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


def _time_errors(new: JsonObject, old: JsonObject) -> list[FieldError]:
    after, before, errors = new["status"], old["status"], []
    ended, started = after.get("completionTime"), after.get("startTime")
    if ended and before.get("completionTime") not in (None, ended):
        errors.append(invalid_value("status.completionTime", ended, "field is immutable"))
    if before.get("startTime") not in (None, started) and not new["spec"].get("suspend"):
        problem = "field is immutable for unsuspended job once set"
        errors.append(invalid_value("status.startTime", started, problem))
    return errors


def _finished_errors(status: JsonObject, *, idle: bool) -> list[FieldError]:
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


def _mode_errors(path: str, spec: JsonObject) -> list[FieldError]:
    if errors := field_rule_errors("batch.v1.JobSpec#mode", path, spec):
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


def _restart_errors(path: str, spec: JsonObject) -> list[FieldError]:
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


def _failure_policy_errors(path: str, policy: JsonObject, spec: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("batch.v1.PodFailurePolicy", path, policy)
    pod = spec["template"]["spec"]
    names = {one.get("name") for field in ("containers", "initContainers") for one in pod.get(field) or ()}
    for index, rule in enumerate(policy.get("rules") or ()):
        at, action = f"{path}.rules[{index}]", rule.get("action", "")
        errors += field_rule_errors("batch.v1.PodFailurePolicyRule", at, rule)
        if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            problem = "requires the backoffLimitPerIndex to be set"
            errors.append(invalid_value(f"{at}.action", action, problem))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            errors += _exit_code_errors(f"{at}.onExitCodes", codes, names)
        errors += field_rule_errors("batch.v1.PodFailurePolicyRule#conditions", at, rule)
        if codes is not None and conditions:
            problem = "specifying both OnExitCodes and OnPodConditions is not supported"
            errors.append(_without_value(at, problem))
        if codes is None and not conditions:
            problem = "specifying one of OnExitCodes and OnPodConditions is required"
            errors.append(_without_value(at, problem))
    return errors


def _exit_code_errors(path: str, codes: JsonObject, names: set[Any]) -> list[FieldError]:
    operator, values = codes.get("operator", ""), codes.get("values") or []
    errors = field_rule_errors("batch.v1.PodFailurePolicyOnExitCodesRequirement", path, codes)
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


def _holds(status: JsonObject, kind: str) -> bool:
    return any(
        condition.get("type") == kind and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _scales_down(counter: str, spec: JsonObject) -> bool:
    """Report whether the counter may decrease because the Job can be scaled down."""
    indexed = spec.get("completionMode") == "Indexed"
    return counter == "succeeded" and indexed and spec.get("completions") == spec.get("parallelism")


def _without_value(path: str, problem: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {problem}")


_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_IMMUTABLE = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_SCHEDULING = ("nodeSelector", "tolerations", "schedulingGates", "affinity")
_LONGEST_CRON_NAME = 52
_UNLIMITED = 2**31 - 1


class Jobs(Workload):
    """Jobs. The selector and the pod labels are generated from the uid, unless `manualSelector` is set."""

    selectable = ("metadata.name", "metadata.namespace", "status.successful")

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", _UNLIMITED if "backoffLimitPerIndex" in spec else 6)
        _default_job_template(spec)
        if labels := spec["template"]["metadata"].get("labels"):
            obj["metadata"].setdefault("labels", labels)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        replaced = "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed"
        spec.setdefault("podReplacementPolicy", replaced)
        spec.setdefault("manualSelector", False)

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        meta, spec = obj["metadata"], obj["spec"]
        if spec["manualSelector"]:
            return
        template = spec["template"]["metadata"]
        labels = template.setdefault("labels", {})
        # Labels that the Job was given from the template are the same map on the real server: they get the additions.
        shared = meta.get("labels", labels) is labels
        for names, value in ((_NAME_LABELS, meta.get("name", "")), (_UID_LABELS, meta["uid"])):
            for name in names:
                labels.setdefault(name, value)
        if shared:
            meta["labels"] = dict(labels)
        selector = spec.setdefault("selector", {}).setdefault("matchLabels", {})
        selector.setdefault(_UID_LABELS[1], meta["uid"])

    def validate(self, obj: Object) -> list[FieldError]:
        meta, spec = obj["metadata"], obj["spec"]
        errors = _generated_errors(obj) + _job_spec_errors("spec", spec) + _selector_errors(spec)
        if spec.get("completionMode") == "Indexed" and (spec.get("completions") or 0) > 0:
            last = f"{meta.get('name', '')}-{spec['completions'] - 1}"
            if dns_label(last):
                problem = f"will not able to create pod with invalid DNS label: {last}"
                errors.append(invalid_value("metadata.name", meta.get("name", ""), problem))
        return errors

    def validate_change(self, new: Object, old: Object) -> list[FieldError]:
        after, before = new["spec"], old["spec"]
        errors = self.validate(new) + _completions_errors(after, before)
        errors += unchanged_selector(after, before)
        if _fixed(after["template"], old) != _fixed(before["template"], old):
            errors.append(immutable("spec.template", after["template"]))
        return errors + changed_errors("spec", _IMMUTABLE, after, before)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return _job_status_errors(new, old)

    def fields_for_selection(self, obj: Object) -> dict[str, str]:
        succeeded = str(obj["status"].get("succeeded", 0))
        return {**super().fields_for_selection(obj), "status.successful": succeeded}

    def selector_problem(self, path: str) -> str:
        return f'field label "{path}" not supported for Job'


class CronJobs(Workload):
    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        _default_job_template(own(spec, "jobTemplate", "spec"))

    def validate(self, obj: Object) -> list[FieldError]:
        errors, name = self._spec_errors(obj["spec"], None), obj["metadata"].get("name", "")
        if len(name) > _LONGEST_CRON_NAME:
            problem = f"must be no more than {_LONGEST_CRON_NAME} characters"
            errors.append(invalid_value("metadata.name", name, problem))
        return errors

    def validate_change(self, new: Object, old: Object) -> list[FieldError]:
        return self._spec_errors(new["spec"], old["spec"])

    def _spec_errors(self, spec: JsonObject, before: JsonObject | None) -> list[FieldError]:
        schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
        old_schedule = (before or {}).get("schedule", "")
        errors = [] if schedule else [required("spec.schedule")]
        if schedule:
            errors += schedule_errors("spec.schedule", schedule, zone, allows_zone="TZ" in old_schedule)
        errors += field_rule_errors("batch.v1.CronJobSpec#deadline", "spec", spec)
        if zone is not None and (before is None or before.get("timeZone") != zone):
            errors += time_zone_errors("spec.timeZone", zone)
        errors += field_rule_errors("batch.v1.CronJobSpec", "spec", spec)
        path, job = "spec.jobTemplate.spec", spec["jobTemplate"]["spec"]
        errors += _job_spec_errors(path, job)
        if (selector := job.get("selector")) is not None:
            problem = "`selector` will be auto-generated"
            errors.append(invalid_value(f"{path}.selector", shown_selector(selector), problem))
        if job.get("manualSelector"):
            errors.append(unsupported(f"{path}.manualSelector", True, ("nil", "false")))
        return errors + field_rule_errors("batch.v1.CronJobSpec#histories", "spec", spec)


def _default_job_template(spec: Object) -> None:
    default_template(own(spec, "template"))
    for rule in own_items(own(spec, "podFailurePolicy") or {}, "rules"):
        for condition in own_items(rule, "onPodConditions"):
            if not condition.get("status"):
                condition["status"] = "True"


def _generated_errors(job: JsonObject) -> list[FieldError]:
    meta, spec = job["metadata"], job["spec"]
    if spec.get("manualSelector") or spec.get("selector") is None:
        return []
    expected = {
        **dict.fromkeys(_NAME_LABELS, meta.get("name", "")),
        **dict.fromkeys(_UID_LABELS, meta.get("uid", "")),
    }
    given = spec["template"]["metadata"].get("labels") or {}
    errors = []
    for label, value in expected.items():
        at = "spec.template.metadata.labels"
        if label not in given:
            errors.append(required(at, f"must be '{value}'"))
        elif given[label] != value:
            shown = shown_labels(given)
            errors.append(invalid_value(at, shown, f"must be '{value}'"))
    if not selects(spec["selector"], expected):
        shown = shown_selector(spec["selector"])
        errors.append(invalid_value("spec.selector", shown, "`selector` not auto-generated"))
    return errors


def _selector_errors(spec: JsonObject) -> list[FieldError]:
    selector = spec.get("selector")
    errors = [required("spec.selector")] if selector is None else []
    errors += label_selector_errors("spec.selector", selector)
    return errors + (match_errors("spec.template", selector, spec["template"]) if selector != {} else [])


def _completions_errors(after: JsonObject, before: JsonObject) -> list[FieldError]:
    completions = after.get("completions")
    if completions == before.get("completions"):
        return []
    if after.get("completionMode") != "Indexed":
        return [immutable("spec.completions", completions)]
    if completions is None or completions == after.get("parallelism"):
        return []
    problem = "can only be modified in tandem with spec.parallelism"
    return [invalid_value("spec.completions", completions, problem)]


def _fixed(template: JsonObject, old: JsonObject) -> JsonObject:
    """Return the template without the mutable fields. For a suspended job these include the scheduling fields."""
    status = old["status"]
    suspended = any(
        condition.get("type") == "Suspended" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    idle = not status.get("active") and (status.get("startTime") is None or suspended)
    if not (old["spec"].get("suspend") and idle):
        return template
    spec = {name: value for name, value in template["spec"].items() if name not in _SCHEDULING}
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [
                {name: value for name, value in one.items() if name != "resources"} for one in spec[field]
            ]
    return {"spec": spec}
