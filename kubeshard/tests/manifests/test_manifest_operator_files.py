"""The chart and the kustomization of an operator render the objects that are printed. The chart does so but for the
Namespace, and with labels of the release. Needs the programs of `make kube` except where it says nothing of them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from test_manifest_operator import Page, Sheet, down, manager, reconcile, titled, up

from kubeshard import Controller, LeaderElection, Manager
from kubeshard.cli.manifests import manifests
from kubeshard.manifests.image import image_of, image_parts
from kubeshard.manifests.kustomization import identity
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.operator_files import operator_chart, operator_kustomization
from kubeshard.manifests.values import OperatorValues, chosen
from kubeshard.webhook import Webhooks
from kubeshard_apiserver.testing.assets import find_assets
from kubeshard_lab.examples import webhosting


def converting() -> Manager:
    """With webhooks, and a conversion, whose definition has the operator's namespace."""
    pages = Controller(name="pages", reconciler=reconcile, primary=Page)
    sheets = Controller(name="sheets", reconciler=reconcile, primary=Sheet)  # type: ignore[arg-type]
    webhooks = Webhooks("pages", [titled, up, down])
    return Manager([pages, sheets], servers=[webhooks], leader_election=LeaderElection(name="pages"))


OPERATORS = {"plain": manager, "converting": converting, "sharded": webhosting.operator.manager}
IMAGE = "example.com/pages:v1"
SETS: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "switched": {
        "createNamespace": False,
        "networkPolicy": {"enabled": True, "controlPlane": [{"ipBlock": {"cidr": "10.0.0.0/28"}}]},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True, "annotations": {"folder": "operators"}},
        "crds": {"keep": False},
    },
    "confined": {
        "namespace": "elsewhere",
        "watchNamespaces": ["one", "two"],
        "serviceAccount": {"name": "somebody", "annotations": {"a/b": "c"}},
    },
    "placed": {
        "image": "mirror.example.com/pages@sha256:" + "0" * 64,
        "imagePullSecrets": [{"name": "mirror"}],
        "imagePullPolicy": "Always",
        "logLevel": "debug",
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "ephemeral-storage": "1Gi"}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
        "priorityClassName": "high",
        "podLabels": {"team": "web"},
        "podAnnotations": {"note": "{{ braces }}"},
        "podSecurityContext": {"runAsNonRoot": True, "fsGroup": 1000},
        "securityContext": {"readOnlyRootFilesystem": False},
        "commonLabels": {"cost": "web"},
        "commonAnnotations": {"a/b": "common", "link": "{{ braces }}"},
        "topologySpreadConstraints": [
            {
                "maxSkew": 2,
                "topologyKey": "rack",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "pages"}},
            }
        ],
        "extraArgs": ["--namespaces=one"],
        "extraEnv": [{"name": "MODE", "value": "fast"}],
        "extraVolumes": [{"name": "tmp", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "serviceAccount": {"create": False},
    },
    "annotated": {
        "commonAnnotations": {"a/b": "common", "folder": "common", "link": "here"},
        "serviceAccount": {"annotations": {"a/b": "c"}},
        "dashboards": {"enabled": True, "annotations": {"folder": "operators"}},
        "prometheusRule": {"enabled": True},
        "crds": {"keep": False},
    },
}
RING: Mapping[str, Any] = {
    "namespace": "elsewhere",
    "replicas": 3,
    "ring": {"enabled": True, "policies": True, "sharderNamespace": "a", "sharderName": "b"},
    "serviceAccount": {"name": "somebody"},
}


@pytest.fixture(scope="module")
def programs() -> Path:
    return find_assets(["helm", "kubectl"])


def by_identity(objects: Iterable[Any]) -> dict[Any, Any]:
    found = [each for each in objects if each]
    made = {identity(each): each for each in found}
    assert len(made) == len(found)
    return made


def written(files: Mapping[str, str], folder: Path) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def printed(operator: str, values: Mapping[str, Any]) -> dict[Any, Any]:
    made = chosen(OperatorValues, {"image": IMAGE, **values})
    return by_identity(operator_objects(OPERATORS[operator](), "my_pages:manager", "pages", made))


def chart(operator: str, folder: Path, values: Mapping[str, Any] | None = None) -> Path:
    made = chosen(OperatorValues, {"image": IMAGE, **(values or {})})
    return written(operator_chart(OPERATORS[operator](), "my_pages:manager", "pages", made), folder)


RELEASE_ONLY = {"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"}


KEEP = "helm.sh/resource-policy"


def released(made: Path, values: Mapping[str, Any], programs: Path, *arguments: str) -> dict[Any, Any]:
    """What the chart renders for these values and those of Helm itself, without what only a release has: some labels,
    and the annotation of definitions that are kept.
    """
    file = chart_values(values, made.parent / "values.yaml")
    command = [
        programs / "helm",
        "template",
        "pages",
        made,
        "--namespace",
        values.get("namespace", "pages"),
        "--values",
        file,
        *arguments,
    ]
    found = by_identity(yaml.safe_load_all(run(*command)))
    for each in found.values():
        labels = each["metadata"]["labels"]
        assert labels.keys() >= RELEASE_ONLY
        each["metadata"]["labels"] = {key: labels[key] for key in labels.keys() - RELEASE_ONLY}
        if each["kind"] == "CustomResourceDefinition":
            kept = values.get("crds", {}).get("keep", True)
            assert (each["metadata"].get("annotations", {}).pop(KEEP, None) == "keep") is kept
            if not each["metadata"].get("annotations", True):
                del each["metadata"]["annotations"]
    return found


def chart_values(values: Mapping[str, Any], file: Path) -> Path:
    """The file with these values, but for what the release decides."""
    given = {key: each for key, each in values.items() if key not in ("createNamespace", "namespace")}
    if "image" in given:
        given["image"] = image_parts(given["image"])
    file.write_text(json.dumps(given))
    return file


def beside_the_namespace(objects: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: each for key, each in objects.items() if each["kind"] != "Namespace"}


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


CASES = [
    *((operator, name, values) for operator in OPERATORS for name, values in SETS.items()),
    ("sharded", "ring", RING),
    ("sharded", "ring without policies", {"ring": {"enabled": True}}),
    ("sharded", "with a flow schema", {"flowSchema": {"enabled": True}, "commonAnnotations": {"a/b": "c"}}),
    ("sharded", "without a budget", {"podDisruptionBudget": {"enabled": False}}),
    ("sharded", "ring with annotations", {**RING, "commonAnnotations": {"a/b": "common"}}),
    ("sharded", "annotated ring", {"ring": {"enabled": True}, "commonAnnotations": {"a/b": "common"}}),
]


@pytest.mark.kube
@pytest.mark.parametrize("operator", OPERATORS)
def test_helm_makes_of_every_value_what_is_printed(operator: str, programs: Path, tmp_path: Path) -> None:
    made = chart(operator, tmp_path / "chart")
    assert "0 chart(s) failed" in run(programs / "helm", "lint", "--strict", made)
    for each, name, values in CASES:
        if each == operator:
            assert released(made, values, programs) == beside_the_namespace(printed(operator, values)), name


@pytest.mark.kube
def test_the_values_with_which_a_chart_is_made_are_its_defaults(programs: Path, tmp_path: Path) -> None:
    made = chart("sharded", tmp_path / "chart", RING)
    place = {"namespace": RING["namespace"]}
    assert released(made, place, programs) == beside_the_namespace(printed("sharded", RING))


@pytest.mark.kube
@pytest.mark.parametrize(
    ("release", "settings", "name"),
    [
        ("pages", [], "pages"),
        ("my-pages", [], "my-pages"),
        ("blue", [], "blue-pages"),
        ("blue", ["nameOverride=sites"], "blue-sites"),
        ("blue", ["fullnameOverride=other"], "other"),
        ("a" * 53, [], f"{'a' * 53}-p"),  # the name of a Service is longer, and has to be a label
    ],
)
def test_the_objects_of_a_release_are_named_after_it_and_refer_to_each_other(
    release: str, settings: list[str], name: str, programs: Path, tmp_path: Path
) -> None:
    made = chart("sharded", tmp_path, {"dashboards": {"enabled": True}, "serviceMonitor": {"enabled": True}})
    command = [programs / "helm", "template", release, made, "--namespace", "elsewhere"]
    text = run(*command, *(f"--set={each}" for each in settings))
    found = by_identity(yaml.safe_load_all(text)).values()
    own = [each for each in found if each["kind"] != "CustomResourceDefinition"]
    assert {each["metadata"]["name"] for each in own} == {
        name,
        *(f"{name}-{each}" for each in ("metrics", "metrics-reader", "dashboard")),
    }
    assert {each["metadata"].get("namespace", "elsewhere") for each in own} == {"elsewhere"}
    bindings = [each for each in found if each["kind"].endswith("Binding")]
    assert bindings
    for each in bindings:
        assert each["roleRef"]["name"] == name
        assert each["subjects"] == [{"kind": "ServiceAccount", "namespace": "elsewhere", "name": name}]
    deployment, service, budget = (
        next(each["spec"] for each in found if each["kind"] == kind)
        for kind in ("Deployment", "Service", "PodDisruptionBudget")
    )
    assert deployment["template"]["spec"]["serviceAccountName"] == name
    labels = deployment["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == release
    for selector in (
        deployment["selector"]["matchLabels"],
        service["selector"],
        budget["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
        assert "app.kubernetes.io/version" not in selector  # which changes, and selectors cannot


@pytest.mark.kube
def test_the_parts_of_the_image_are_set_one_by_one(programs: Path, tmp_path: Path) -> None:
    made, digest = chart("plain", tmp_path), "sha256:" + "0" * 64
    for settings, image in (
        ([], IMAGE),
        (["image.tag=v2"], "example.com/pages:v2"),
        (["image.repository=mirror.example.com:5000/pages"], "mirror.example.com:5000/pages:v1"),
        ([f"image.digest={digest}"], f"example.com/pages@{digest}"),
        ([f"image.digest={digest}", "image.tag=v2"], f"example.com/pages:v2@{digest}"),
    ):
        text = run(programs / "helm", "template", "pages", made, *(f"--set={each}" for each in settings))
        (pod,) = (
            each["spec"]["template"]["spec"]
            for each in yaml.safe_load_all(text)
            if each and each["kind"] == "Deployment"
        )
        assert pod["containers"][0]["image"] == image


@pytest.mark.kube
def test_build_metadata_of_a_version_makes_no_illegal_label_or_image(programs: Path, tmp_path: Path) -> None:
    values = {"image": {"repository": "example.com/pages"}, "about": {"version": "1.2.0+build.5"}}
    text = run(programs / "helm", "template", "pages", chart("plain", tmp_path, values))
    rendered = by_identity(yaml.safe_load_all(text)).values()
    (image,) = (
        each["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in rendered
        if each["kind"] == "Deployment"
    )
    assert image == image_of(values["image"], "1.2.0+build.5") == "example.com/pages:1.2.0_build.5"
    assert {each["metadata"]["labels"]["app.kubernetes.io/version"] for each in rendered} == {"1.2.0_build.5"}


@pytest.mark.kube
@pytest.mark.parametrize("label", ["app.kubernetes.io/version", "helm.sh/chart"])
def test_a_version_that_is_too_long_for_a_label_makes_a_legal_one(
    label: str, programs: Path, tmp_path: Path
) -> None:
    first = {"app.kubernetes.io/version": "1.2.0-", "helm.sh/chart": "pages-1.2.0-"}[label]
    fits = first + "a" * (62 - len(first))
    values = {
        "image": {"repository": "example.com/pages"},
        "about": {"version": f"{fits.removeprefix('pages-')}.b"},  # the 63rd character is the last dot
    }
    made = chart("plain", tmp_path, values)
    rendered = by_identity(yaml.safe_load_all(run(programs / "helm", "template", "pages", made))).values()
    assert {each["metadata"]["labels"][label] for each in rendered} == {fits}


@pytest.mark.kube
def test_a_chart_says_in_which_namespace_its_webhooks_have_to_be(programs: Path, tmp_path: Path) -> None:
    bound = Webhooks("pages", [titled], namespace="web")
    pages = Controller(name="pages", reconciler=reconcile, primary=Page)
    values = chosen(OperatorValues, {"image": IMAGE, "namespace": "web"})
    made = written(
        operator_chart(Manager([pages], servers=[bound]), "my_pages:manager", "pages", values), tmp_path
    )
    run(programs / "helm", "template", "pages", made, "--namespace", "web")
    command = [programs / "helm", "template", "pages", made, "--namespace", "elsewhere"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "install with --namespace web" in done.stderr


def test_the_notes_name_the_kinds_of_the_operator(tmp_path: Path) -> None:
    notes = (chart("plain", tmp_path) / "templates" / "NOTES.txt").read_text()
    assert "It brings the kind Page; `kubectl explain` describes it." in notes


def test_only_the_chart_tells_helm_to_keep_definitions(tmp_path: Path) -> None:
    for each in printed("plain", {}).values():
        assert KEEP not in each["metadata"].get("annotations", {})
    assert KEEP in (chart("plain", tmp_path) / "templates" / "crds.yaml").read_text()


@pytest.mark.kube
def test_a_chart_can_depend_on_the_operators_chart(programs: Path, tmp_path: Path) -> None:
    whole = {"apiVersion": "v2", "name": "platform", "version": "0.1.0"}
    dependency = {"name": "pages", "version": "0.1.0"}
    written({"Chart.yaml": json.dumps({**whole, "dependencies": [dependency]})}, tmp_path)
    (tmp_path / "charts").mkdir()
    chart("plain", tmp_path / "charts" / "pages")
    settings = ("--set=pages.replicas=0", "--set=global.imageRegistry=example.com")
    found = by_identity(yaml.safe_load_all(run(programs / "helm", "template", "all", tmp_path, *settings)))
    (deployment,) = (each for each in found.values() if each["kind"] == "Deployment")
    assert deployment["metadata"]["name"] == "all-pages"
    assert deployment["spec"]["replicas"] == 0


def test_the_parts_of_an_image_make_its_reference() -> None:
    for reference in (
        "pages",
        "pages:v1",
        "example.com:5000/team/pages:v1",
        "example.com:5000/pages@sha256:" + "0" * 64,
        "example.com/pages:v1@sha256:" + "0" * 64,
    ):
        parts = image_parts(reference)
        assert image_of(parts, "latest") == (reference if len(parts) > 1 else f"{reference}:latest")


@pytest.mark.kube
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("replicas=2", "replicas"),  # the operator takes no turns
        ("ring.enabled=true", "ring"),  # it declares none
        ("nodeselector.a=b", "nodeselector"),
        ("image=example.com/pages:v2", "image"),
        ("image.tag=a b", "tag"),
        ("image.tags=v2", "tags"),
        ("namespace=elsewhere", "namespace"),  # the release's
        ("fullnameOverride=Pages", "fullnameOverride"),
        ("commonLabels.app\\.kubernetes\\.io/instance=mine", "app.kubernetes.io/instance"),
        ("podSecurityContext.privileged=true", "privileged"),
        ("extraArgs=--namespaces", "extraArgs"),
        ("extraEnv[0].nam=MODE", "nam"),
        ("resources.requests.cpu=much", "cpu"),
        ("serviceMonitor.enabled=perhaps", "serviceMonitor"),
        ("watchNamespaces={A_B}", "watchNamespaces"),
    ],
)
def test_the_chart_refuses_what_the_operator_cannot_do(
    setting: str, says: str, programs: Path, tmp_path: Path
) -> None:
    command = [programs / "helm", "template", "pages", chart("plain", tmp_path), "--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert says in done.stderr


@pytest.mark.kube
def test_kustomize_makes_what_is_printed(programs: Path, tmp_path: Path) -> None:
    made = chosen(OperatorValues, {"image": IMAGE, **RING})
    files = operator_kustomization(OPERATORS["sharded"](), "my_pages:manager", "pages", made)
    text = run(programs / "kubectl", "kustomize", written(files, tmp_path))
    assert by_identity(yaml.safe_load_all(text)) == printed("sharded", RING)


def test_annotations_of_all_objects_are_beside_those_that_some_have_and_do_not_replace_them() -> None:
    values = {
        "commonAnnotations": {"a/b": "common", "link": "here"},
        "serviceAccount": {"annotations": {"a/b": "c"}},
    }
    for (_, kind, *_), each in printed("converting", values).items():
        own = {"a/b": "c"} if kind == "ServiceAccount" else {"a/b": "common"}
        assert each["metadata"]["annotations"].items() >= {"link": "here", **own}.items(), kind
    for each in printed("plain", {}).values():
        assert "annotations" not in each["metadata"]


def test_pods_are_spread_over_nodes_and_zones_unless_the_values_say_how() -> None:
    wanted = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    for values, keys in (
        ({}, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]),
        ({"topologySpreadConstraints": [wanted]}, ["rack"]),
    ):
        (deployment,) = (each for each in printed("plain", values).values() if each["kind"] == "Deployment")
        spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert [each["topologyKey"] for each in spread] == keys


def test_only_an_operator_whose_pods_take_turns_has_a_budget_and_a_value_for_it(tmp_path: Path) -> None:
    for operator, has in (("plain", False), ("sharded", True)):
        kinds = {kind for _, kind, *_ in printed(operator, {})}
        assert ("PodDisruptionBudget" in kinds) is has
        values = yaml.safe_load((chart(operator, tmp_path / operator) / "values.yaml").read_text())
        assert ("podDisruptionBudget" in values) is has
    assert "PodDisruptionBudget" not in {
        kind for _, kind, *_ in printed("sharded", {"podDisruptionBudget": {"enabled": False}})
    }


def test_an_operator_in_some_namespaces_has_rights_in_these_only() -> None:
    found = printed("plain", {"watchNamespaces": ["one", "two"]})
    assert {(kind, place) for _, kind, place, _ in found if kind in ("Role", "ClusterRole")} == {
        ("Role", "one"),
        ("Role", "two"),
    }
    (pod,) = (each["spec"]["template"]["spec"] for each in found.values() if each["kind"] == "Deployment")
    assert {"name": "WATCH_NAMESPACE", "value": "one,two"} in pod["containers"][0]["env"]


def test_a_manager_is_as_before_when_its_manifests_are_made() -> None:
    made = manager()
    before = list(made.grants())
    operator_objects(made, "my_pages:manager", "pages", chosen(OperatorValues, {"image": IMAGE}))
    assert list(made.grants()) == before


def test_what_a_chart_no_longer_has_is_removed_and_files_of_others_stay(tmp_path: Path) -> None:
    target = [
        "kubeshard_lab.examples.checksum.operator",
        "--set",
        f"image={IMAGE}",
        "--folder",
        str(tmp_path),
    ]
    command = ["operator", *target, "--format", "kustomize"]
    done = CliRunner().invoke(manifests, [*command, "--set", "ring.enabled=true"], catch_exceptions=False)
    assert done.exit_code == 0
    (tmp_path / "mine.yaml").write_text("a: b")
    assert (tmp_path / "ring.yaml").exists()
    CliRunner().invoke(manifests, command, catch_exceptions=False)
    assert {"kustomization.yaml", "mine.yaml"} <= {each.name for each in tmp_path.iterdir()}
    assert not (tmp_path / "ring.yaml").exists()
