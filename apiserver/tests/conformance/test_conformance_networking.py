"""Ingresses, IngressClasses and NetworkPolicies."""

import pytest
from conformance_workloads import LABEL, QUALIFIED, SUBDOMAIN, forbidden, invalid, required, unsupported

BACKEND = {"service": {"name": "s", "port": {"number": 80}}}
CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
WILDCARD = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', "
    "regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
GENERAL = {"ingressclass.kubernetes.io/is-default-class": "true"}


def ingress(name="a", **spec):
    return {"metadata": {"name": name}, "spec": spec}


def policy(**spec):
    return {"metadata": {"name": "a"}, "spec": {"podSelector": {}, **spec}}


@pytest.fixture
def ingresses(ns):
    return f"/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses"


@pytest.fixture
def policies(ns):
    return f"/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies"


async def test_a_minimal_ingress(api, ingresses):
    made = await api.create(ingresses, ingress(defaultBackend=BACKEND))
    assert made["spec"] == {"defaultBackend": BACKEND}
    assert made["status"] == {"loadBalancer": {}}
    assert made.meta["generation"] == 1


async def test_an_ingress_with_rules(api, ingresses):
    path = {"path": "/", "pathType": "Prefix", "backend": BACKEND}
    rules = [{"host": "*.example.com", "http": {"paths": [path]}}, {"host": "a.example.com"}]
    made = await api.create(
        ingresses, ingress(rules=rules, tls=[{"hosts": ["*.example.com"], "secretName": "s"}])
    )
    assert made["spec"]["rules"] == rules


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({}, {invalid("spec", "null", "either `defaultBackend` or `rules` must be specified")}),
        (
            {"rules": [{"host": "1.2.3.4"}]},
            {invalid("spec.rules[0].host", '"1.2.3.4"', "must be a DNS name, not an IP address")},
        ),
        ({"rules": [{"host": "A_"}]}, {invalid("spec.rules[0].host", '"A_"', SUBDOMAIN)}),
        (
            {"rules": [{"host": "a.*.b"}]},
            {
                invalid(
                    "spec.rules[0].host",
                    '"a.*.b"',
                    WILDCARD,
                )
            },
        ),
        ({"rules": [{"http": {"paths": []}}]}, {required("spec.rules[0].http.paths")}),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": None,
                                    "path": "/",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {required("spec.rules[0].http.paths[0].pathType", "pathType must be specified")},
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": "x",
                                    "path": "/",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {
                unsupported(
                    "spec.rules[0].http.paths[0].pathType", '"x"', "Exact", "ImplementationSpecific", "Prefix"
                )
            },
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": "Prefix",
                                    "path": "",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {invalid("spec.rules[0].http.paths[0].path", '""', "must be an absolute path")},
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": "Prefix",
                                    "path": "a",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {invalid("spec.rules[0].http.paths[0].path", '"a"', "must be an absolute path")},
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": "Prefix",
                                    "path": "/a//b",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {invalid("spec.rules[0].http.paths[0].path", '"/a//b"', "must not contain '//'")},
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": "Prefix",
                                    "path": "/a/./b",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {invalid("spec.rules[0].http.paths[0].path", '"/a/./b"', "must not contain '/./'")},
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": "Prefix",
                                    "path": "/a/../b",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {invalid("spec.rules[0].http.paths[0].path", '"/a/../b"', "must not contain '/../'")},
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": "Prefix",
                                    "path": "/%2fb",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {invalid("spec.rules[0].http.paths[0].path", '"/%2fb"', "must not contain '%2f'")},
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": "Prefix",
                                    "path": "/b/..",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {invalid("spec.rules[0].http.paths[0].path", '"/b/.."', "cannot end with '/..'")},
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": "Exact",
                                    "path": "/b/.",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {invalid("spec.rules[0].http.paths[0].path", '"/b/."', "cannot end with '/.'")},
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "pathType": "ImplementationSpecific",
                                    "path": "x",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            },
            {invalid("spec.rules[0].http.paths[0].path", '"x"', "must be an absolute path")},
        ),
        (
            {
                "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}},
                "tls": [{"hosts": ["A_"]}],
            },
            {invalid("spec.tls[0].hosts[0]", '"A_"', SUBDOMAIN)},
        ),
        (
            {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}, "tls": [{"hosts": ["*"]}]},
            {
                invalid(
                    "spec.tls[0].hosts[0]",
                    '"*"',
                    WILDCARD,
                )
            },
        ),
        (
            {
                "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}},
                "tls": [{"secretName": "A_"}],
            },
            {invalid("spec.tls[0].secretName", '"A_"', SUBDOMAIN)},
        ),
        (
            {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}, "ingressClassName": "A_"},
            {invalid("spec.ingressClassName", '"A_"', SUBDOMAIN)},
        ),
    ],
)
async def test_an_unsound_ingress(api, ingresses, spec, causes):
    refused = await api.create(ingresses, ingress(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


@pytest.mark.parametrize(
    ("backend", "causes"),
    [
        ({}, {invalid("spec.defaultBackend", '""', "resource or service backend is required")}),
        (
            {"service": {}},
            {
                required("spec.defaultBackend", "port name or number is required"),
                required("spec.defaultBackend.service.name"),
            },
        ),
        ({"service": {"name": "a"}}, {required("spec.defaultBackend", "port name or number is required")}),
        (
            {"service": {"name": "a.b", "port": {"number": 80}}},
            {invalid("spec.defaultBackend.service.name", '"a.b"', "must not contain dots")},
        ),
        (
            {"service": {"name": "a", "port": {"name": "http", "number": 80}}},
            {invalid("spec.defaultBackend", '""', "cannot set both port name & port number")},
        ),
        (
            {"service": {"name": "a", "port": {"name": "a--b"}}},
            {
                invalid(
                    "spec.defaultBackend.service.port.name", '"a--b"', "must not contain consecutive hyphens"
                )
            },
        ),
        (
            {"service": {"name": "a", "port": {"number": 70000}}},
            {
                invalid(
                    "spec.defaultBackend.service.port.number",
                    "70000",
                    "must be between 1 and 65535, inclusive",
                )
            },
        ),
        (
            {"resource": {"kind": "", "name": ""}},
            {required("spec.defaultBackend.resource.kind"), required("spec.defaultBackend.resource.name")},
        ),
        (
            {"resource": {"kind": "a/b", "name": "c%"}},
            {
                invalid("spec.defaultBackend.resource.kind", '"a/b"', "may not contain '/'"),
                invalid("spec.defaultBackend.resource.name", '"c%"', "may not contain '%'"),
            },
        ),
        (
            {"resource": {"kind": "K", "name": "n", "apiGroup": "A_"}},
            {invalid("spec.defaultBackend.resource.apiGroup", '"A_"', SUBDOMAIN)},
        ),
        (
            {"resource": {"kind": "K", "name": "n"}, "service": {"name": "a", "port": {"number": 80}}},
            {invalid("spec.defaultBackend", '""', "cannot set both resource and service backends")},
        ),
    ],
)
async def test_an_unsound_backend(api, ingresses, backend, causes):
    refused = await api.create(ingresses, ingress(defaultBackend=backend))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_new_ingress_says_one_class(api, ingresses):
    body = ingress(defaultBackend=BACKEND, ingressClassName="y")
    body["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "x"}
    refused = await api.create(ingresses, body)
    told = invalid(
        "annotations.kubernetes.io/ingress.class",
        '"x"',
        "must match `ingressClassName` when both are specified",
    )
    assert refused.causes == {told}


async def test_changes_of_the_spec_of_an_ingress_are_counted(api, ingresses):
    await api.create(ingresses, ingress(defaultBackend=BACKEND))
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}
    assert (await api.merge(f"{ingresses}/a", status))["status"] == {"loadBalancer": {}}
    written = await api.merge(f"{ingresses}/a/status", status)
    assert (written["status"], written.meta["generation"]) == (status["status"], 1)
    changed = await api.merge(f"{ingresses}/a", {"spec": {"ingressClassName": "x"}})
    assert changed.meta["generation"] == 2
    points = [{"ip": "x"}, {"hostname": "1.2.3.4"}, {"hostname": "A_"}]
    refused = await api.merge(f"{ingresses}/a/status", {"status": {"loadBalancer": {"ingress": points}}})
    at = "status.loadBalancer.ingress"
    assert refused.causes == {
        invalid(f"{at}[0].ip", '"x"', "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        invalid(f"{at}[1].hostname", '"1.2.3.4"', "must be a DNS name, not an IP address"),
        invalid(f"{at}[2].hostname", '"A_"', SUBDOMAIN),
    }


async def test_a_minimal_class_of_ingresses(api, name):
    parameters = {"kind": "K", "name": "n"}
    spec = {"controller": "example.com/x", "parameters": parameters}
    made = await api.create(CLASSES, ingress(name, **spec))
    assert made["spec"] == {**spec, "parameters": {**parameters, "scope": "Cluster"}}
    assert made.meta["generation"] == 1
    await api.delete(f"{CLASSES}/{name}")


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({}, {required("spec.controller")}),
        (
            {"controller": "example"},
            {
                invalid(
                    "spec.controller", '"example"', 'must be a domain-prefixed path (such as "acme.io/foo")'
                )
            },
        ),
        ({"controller": "A_/x"}, {invalid("spec.controller", '"A_"', SUBDOMAIN)}),
        (
            {"controller": "a.b/x y"},
            {
                invalid(
                    "spec.controller",
                    '"x y"',
                    "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
                )
            },
        ),
        (
            {"controller": "/x"},
            {invalid("spec.controller", '"/x"', 'must be a domain-prefixed path (such as "acme.io/foo")')},
        ),
        (
            {"controller": "example.com/x", "parameters": {"kind": "", "name": "n"}},
            {required("spec.parameters.kind")},
        ),
        (
            {"controller": "example.com/x", "parameters": {"kind": "K", "name": ""}},
            {required("spec.parameters.name")},
        ),
        (
            {"controller": "example.com/x", "parameters": {"kind": "a/b", "name": "n"}},
            {invalid("spec.parameters.kind", '"a/b"', "may not contain '/'")},
        ),
        (
            {"controller": "example.com/x", "parameters": {"kind": "K", "name": "a%"}},
            {invalid("spec.parameters.name", '"a%"', "may not contain '%'")},
        ),
        (
            {"controller": "example.com/x", "parameters": {"kind": "K", "name": "n", "apiGroup": "A_"}},
            {invalid("spec.parameters.apiGroup", '"A_"', SUBDOMAIN)},
        ),
        (
            {"controller": "example.com/x", "parameters": {"kind": "K", "name": "n", "scope": "x"}},
            {unsupported("spec.parameters.scope", '"x"', "Cluster", "Namespace")},
        ),
        (
            {"controller": "example.com/x", "parameters": {"kind": "K", "name": "n", "scope": "Namespace"}},
            {required("spec.parameters.namespace", "`parameters.scope` is set to 'Namespace'")},
        ),
        (
            {"controller": "example.com/x", "parameters": {"kind": "K", "name": "n", "namespace": "x"}},
            {forbidden("spec.parameters.namespace", "`parameters.scope` is set to 'Cluster'")},
        ),
        (
            {
                "controller": "example.com/x",
                "parameters": {"kind": "K", "name": "n", "scope": "Namespace", "namespace": "A_"},
            },
            {invalid("spec.parameters.namespace", '"A_"', LABEL)},
        ),
    ],
)
async def test_an_unsound_class_of_ingresses(api, spec, causes):
    refused = await api.create(CLASSES, ingress(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_class_keeps_its_controller(api, name):
    await api.create(CLASSES, ingress(name, controller="example.com/x"))
    refused = await api.merge(f"{CLASSES}/{name}", {"spec": {"controller": "example.com/y"}})
    assert refused.causes == {invalid("spec.controller", '"example.com/y"', "field is immutable")}
    await api.delete(f"{CLASSES}/{name}")


async def test_an_ingress_without_a_class_has_the_one_for_all(api, ingresses, name):
    general = ingress(name, controller="example.com/x")
    general["metadata"]["annotations"] = GENERAL
    await api.create(CLASSES, general)
    made = await api.create(ingresses, ingress(defaultBackend=BACKEND))
    assert made["spec"]["ingressClassName"] == name
    old = ingress("b", defaultBackend=BACKEND)
    old["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "x"}
    assert "ingressClassName" not in (await api.create(ingresses, old))["spec"]
    await api.delete(f"{CLASSES}/{name}")


async def test_a_minimal_policy(api, policies):
    made = await api.create(policies, policy())
    assert made["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    assert made.meta["generation"] == 1
    changed = await api.merge(f"{policies}/a", {"spec": {"ingress": [{"ports": [{"port": "http"}]}]}})
    assert changed["spec"]["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}]}]
    assert changed.meta["generation"] == 2


async def test_a_policy_about_what_leaves_is_one_of_both_types(api, policies):
    made = await api.create(policies, policy(egress=[{}]))
    assert made["spec"]["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"podSelector": {"matchLabels": {"a b": "c"}}},
            {invalid("spec.podSelector.matchLabels", '"a b"', QUALIFIED)},
        ),
        ({"policyTypes": ["x"]}, {unsupported("spec.policyTypes[0]", '"x"', "Ingress", "Egress")}),
        (
            {"policyTypes": ["Ingress", "Egress", "Ingress"]},
            {
                invalid(
                    "spec.policyTypes",
                    '["Ingress","Egress","Ingress"]',
                    "may not specify more than two policyTypes",
                )
            },
        ),
        (
            {"ingress": [{"ports": [{"protocol": "x"}]}]},
            {unsupported("spec.ingress[0].ports[0].protocol", '"x"', "TCP", "UDP", "SCTP")},
        ),
        (
            {"ingress": [{"ports": [{"port": 0}]}]},
            {invalid("spec.ingress[0].ports[0].port", "0", "must be between 1 and 65535, inclusive")},
        ),
        (
            {"ingress": [{"ports": [{"port": "a--b"}]}]},
            {invalid("spec.ingress[0].ports[0].port", '"a--b"', "must not contain consecutive hyphens")},
        ),
        (
            {"ingress": [{"ports": [{"port": 80, "endPort": 79}]}]},
            {invalid("spec.ingress[0].ports[0].endPort", "79", "must be greater than or equal to `port`")},
        ),
        (
            {"ingress": [{"ports": [{"endPort": 80}]}]},
            {
                invalid(
                    "spec.ingress[0].ports[0].endPort",
                    "80",
                    "may not be specified when `port` is not specified",
                )
            },
        ),
        (
            {"ingress": [{"ports": [{"port": "http", "endPort": 80}]}]},
            {
                invalid(
                    "spec.ingress[0].ports[0].endPort",
                    "80",
                    "may not be specified when `port` is non-numeric",
                )
            },
        ),
        (
            {"ingress": [{"ports": [{"port": 80, "endPort": 70000}]}]},
            {invalid("spec.ingress[0].ports[0].endPort", "70000", "must be between 1 and 65535, inclusive")},
        ),
        ({"egress": [{"to": [{}]}]}, {required("spec.egress[0].to[0]", "must specify a peer")}),
        (
            {"egress": [{"to": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
            {forbidden("spec.egress[0].to[0]", "may not specify both ipBlock and another peer")},
        ),
        ({"egress": [{"to": [{"ipBlock": {"cidr": ""}}]}]}, {required("spec.egress[0].to[0].ipBlock.cidr")}),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "x"}}]}]},
            {
                invalid(
                    "spec.egress[0].to[0].ipBlock.cidr",
                    '"x"',
                    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                )
            },
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.1/8"}}]}]},
            {
                invalid(
                    "spec.egress[0].to[0].ipBlock.cidr",
                    '"10.0.0.1/8"',
                    "must not have bits set beyond the prefix length",
                )
            },
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "010.0.0.0/8"}}]}]},
            {
                invalid(
                    "spec.egress[0].to[0].ipBlock.cidr",
                    '"010.0.0.0/8"',
                    "must not have leading 0s in IP or prefix length",
                )
            },
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "::ffff:1.2.3.4/128"}}]}]},
            {
                invalid(
                    "spec.egress[0].to[0].ipBlock.cidr",
                    '"::ffff:1.2.3.4/128"',
                    "must not have an IPv4-mapped IPv6 address",
                )
            },
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]}]},
            {
                invalid(
                    "spec.egress[0].to[0].ipBlock.except[0]",
                    '"11.0.0.0/16"',
                    "must be a strict subset of `cidr`",
                )
            },
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}]}]},
            {
                invalid(
                    "spec.egress[0].to[0].ipBlock.except[0]",
                    '"10.0.0.0/8"',
                    "must be a strict subset of `cidr`",
                )
            },
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["x"]}}]}]},
            {
                invalid(
                    "spec.egress[0].to[0].ipBlock.except[0]",
                    '"x"',
                    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                )
            },
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fd00::/64"]}}]}]},
            {
                invalid(
                    "spec.egress[0].to[0].ipBlock.except[0]",
                    '"fd00::/64"',
                    "must be a strict subset of `cidr`",
                )
            },
        ),
        (
            {
                "egress": [
                    {"to": [{"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "x"}]}}]}
                ]
            },
            {
                invalid(
                    "spec.egress[0].to[0].namespaceSelector.matchExpressions[0].operator",
                    '"x"',
                    "not a valid selector operator",
                )
            },
        ),
    ],
)
async def test_an_unsound_policy(api, policies, spec, causes):
    refused = await api.create(policies, policy(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_new_ingress_with_its_class_in_an_annotation_is_told_of_the_field(api, ingresses):
    body = ingress(defaultBackend=BACKEND)
    body["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "x"}
    made = await api.create(ingresses, body)
    told = (
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
    )
    assert made.warnings == [told]
    assert (await api.merge(f"{ingresses}/a", {"spec": {"tls": [{"hosts": ["a"]}]}})).warnings == []
