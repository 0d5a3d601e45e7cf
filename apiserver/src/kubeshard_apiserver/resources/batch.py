"""Jobs and CronJobs. Source: k8s.io/kubernetes `pkg/apis/batch`, `pkg/registry/batch`.

Not covered: success policies, and the indexes in the status of an indexed Job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources import workload_rules as rules
from kubeshard_apiserver.resources.batch_rules import job_spec_errors, job_status_errors
from kubeshard_apiserver.resources.cron_schedule import schedule_errors, time_zone_errors
from kubeshard_apiserver.resources.facts import changed_errors, fact_errors
from kubeshard_apiserver.resources.pod_defaults import default_template
from kubeshard_apiserver.resources.pod_names import dns_label
from kubeshard_apiserver.resources.value_rules import label_selector_errors, selects
from kubeshard_apiserver.resources.workloads import Workload
from kubeshard_apiserver.status import FieldError, immutable, invalid_value, required, unsupported

Given = Mapping[str, Any]
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
        default_job_template(spec)
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
        # If the Job's labels were copied from the template, they get the additions too, as on the real server.
        shared = (meta.get("labels") or {}) == labels
        for names, value in ((_NAME_LABELS, meta.get("name", "")), (_UID_LABELS, meta["uid"])):
            for name in names:
                labels.setdefault(name, value)
        if shared and labels is not meta.get("labels"):
            meta["labels"] = dict(labels)
        selector = spec.setdefault("selector", {}).setdefault("matchLabels", {})
        selector.setdefault(_UID_LABELS[1], meta["uid"])

    def validate(self, obj: Object) -> list[FieldError]:
        meta, spec = obj["metadata"], obj["spec"]
        errors = _generated_errors(obj) + job_spec_errors("spec", spec) + _selector_errors(spec)
        if spec.get("completionMode") == "Indexed" and (spec.get("completions") or 0) > 0:
            last = f"{meta.get('name', '')}-{spec['completions'] - 1}"
            if dns_label(last):
                problem = f"will not able to create pod with invalid DNS label: {last}"
                errors.append(invalid_value("metadata.name", meta.get("name", ""), problem))
        return errors

    def validate_change(self, new: Object, old: Object) -> list[FieldError]:
        after, before = new["spec"], old["spec"]
        errors = self.validate(new) + _completions_errors(after, before)
        errors += rules.unchanged_selector(after, before)
        if _fixed(after["template"], old) != _fixed(before["template"], old):
            errors.append(immutable("spec.template", after["template"]))
        return errors + changed_errors("spec", _IMMUTABLE, after, before)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return job_status_errors(new, old)

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
        default_job_template(spec["jobTemplate"]["spec"])

    def validate(self, obj: Object) -> list[FieldError]:
        errors, name = self._spec_errors(obj["spec"], None), obj["metadata"].get("name", "")
        if len(name) > _LONGEST_CRON_NAME:
            problem = f"must be no more than {_LONGEST_CRON_NAME} characters"
            errors.append(invalid_value("metadata.name", name, problem))
        return errors

    def validate_change(self, new: Object, old: Object) -> list[FieldError]:
        return self._spec_errors(new["spec"], old["spec"])

    def _spec_errors(self, spec: Given, before: Given | None) -> list[FieldError]:
        schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
        old_schedule = (before or {}).get("schedule", "")
        errors = [] if schedule else [required("spec.schedule")]
        if schedule:
            errors += schedule_errors("spec.schedule", schedule, zone, allows_zone="TZ" in old_schedule)
        errors += fact_errors("batch.v1.CronJobSpec#deadline", "spec", spec)
        if zone is not None and (before is None or before.get("timeZone") != zone):
            errors += time_zone_errors("spec.timeZone", zone)
        errors += fact_errors("batch.v1.CronJobSpec", "spec", spec)
        path, job = "spec.jobTemplate.spec", spec["jobTemplate"]["spec"]
        errors += job_spec_errors(path, job)
        if (selector := job.get("selector")) is not None:
            problem = "`selector` will be auto-generated"
            errors.append(invalid_value(f"{path}.selector", rules.shown_selector(selector), problem))
        if job.get("manualSelector"):
            errors.append(unsupported(f"{path}.manualSelector", True, ("nil", "false")))
        return errors + fact_errors("batch.v1.CronJobSpec#histories", "spec", spec)


def default_job_template(spec: Object) -> None:
    default_template(spec["template"])
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for condition in rule.get("onPodConditions") or ():
            if not condition.get("status"):
                condition["status"] = "True"


def _generated_errors(job: Given) -> list[FieldError]:
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
            shown = rules.shown_labels(given)
            errors.append(invalid_value(at, shown, f"must be '{value}'"))
    if not selects(spec["selector"], expected):
        shown = rules.shown_selector(spec["selector"])
        errors.append(invalid_value("spec.selector", shown, "`selector` not auto-generated"))
    return errors


def _selector_errors(spec: Given) -> list[FieldError]:
    selector = spec.get("selector")
    errors = [required("spec.selector")] if selector is None else []
    errors += label_selector_errors("spec.selector", selector)
    return errors + (
        rules.match_errors("spec.template", selector, spec["template"]) if selector != {} else []
    )


def _completions_errors(after: Given, before: Given) -> list[FieldError]:
    completions = after.get("completions")
    if completions == before.get("completions"):
        return []
    if after.get("completionMode") != "Indexed":
        return [immutable("spec.completions", completions)]
    if completions is None or completions == after.get("parallelism"):
        return []
    problem = "can only be modified in tandem with spec.parallelism"
    return [invalid_value("spec.completions", completions, problem)]


def _fixed(template: Given, old: Given) -> Given:
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
