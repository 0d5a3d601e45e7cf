"""Services, and where their traffic goes: Endpoints and EndpointSlices."""

import pytest
from conformance_workloads import (
    LABEL,
    QUALIFIED,
    SUBDOMAIN,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)

ONCE = "may not change once set"
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
PORT = {"port": 80, "protocol": "TCP", "targetPort": 80}
STORED = {
    "ports": [PORT],
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
    "internalTrafficPolicy": "Cluster",
}
GIVEN = ("clusterIP", "clusterIPs", "healthCheckNodePort")


def service(name="a", **spec):
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def slice_(**fields):
    return {"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [], **fields}


def chosen(answer):
    """Returns the spec without the fields whose values differ for every Service."""
    spec = {name: value for name, value in answer["spec"].items() if name not in GIVEN}
    ports = [
        {name: value for name, value in port.items() if name != "nodePort"} for port in spec.get("ports", [])
    ]
    return {**spec, "ports": ports} if ports else spec


def numbers(answer):
    return [port.get("nodePort") for port in answer["spec"]["ports"]]


@pytest.fixture
def services(ns):
    return f"/api/v1/namespaces/{ns}/services"


@pytest.fixture
def endpoints(ns):
    return f"/api/v1/namespaces/{ns}/endpoints"


@pytest.fixture
def slices(ns):
    return f"/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices"


async def test_a_minimal_service(api, services):
    made = await api.create(services, service())
    assert chosen(made) == STORED
    assert made["spec"]["clusterIP"].startswith("10.96.")
    assert made["spec"]["clusterIPs"] == [made["spec"]["clusterIP"]]
    assert made["status"] == {"loadBalancer": {}}
    assert "generation" not in made.meta


async def test_every_cluster_has_the_service_of_its_api(api):
    found = await api.get("/api/v1/namespaces/default/services/kubernetes")
    assert found["spec"]["clusterIP"] == "10.96.0.1"
    assert found.meta["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    (port,) = found["spec"]["ports"]
    assert (port["name"], port["port"], port["protocol"]) == ("https", 443, "TCP")


@pytest.mark.parametrize(
    ("spec", "stored"),
    [
        ({"clusterIP": "None", "selector": {"a": "b"}}, {}),
        ({"clusterIP": "None"}, {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}),
        ({"type": "NodePort"}, {"externalTrafficPolicy": "Cluster"}),
        (
            {"type": "LoadBalancer"},
            {"externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": True},
        ),
        (
            {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
            {"allocateLoadBalancerNodePorts": True},
        ),
        (
            {"type": "LoadBalancer", "loadBalancerClass": "a/b", "allocateLoadBalancerNodePorts": False},
            {"externalTrafficPolicy": "Cluster"},
        ),
        ({"externalIPs": ["1.2.3.4"]}, {"externalTrafficPolicy": "Cluster"}),
        ({"ports": [{"port": 80, "targetPort": "http"}]}, {"ports": [{**PORT, "targetPort": "http"}]}),
        ({"ipFamilyPolicy": "PreferDualStack"}, {}),
        (
            {"sessionAffinity": "ClientIP"},
            {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}},
        ),
    ],
)
async def test_what_a_service_does_not_say(api, services, spec, stored):
    made = await api.create(services, service(**spec))
    given = {name: value for name, value in spec.items() if name not in GIVEN}
    assert chosen(made) == {**STORED, **given, **stored}


async def test_an_external_name_has_no_address(api, services):
    spec = {"type": "ExternalName", "externalName": "a.example.com.", "internalTrafficPolicy": "Local"}
    made = await api.create(services, {"metadata": {"name": "a"}, "spec": spec})
    assert made["spec"] == {
        "type": "ExternalName",
        "externalName": "a.example.com.",
        "sessionAffinity": "None",
    }


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"ports": []}, {required("spec.ports")}),
        (
            {"ports": [{"port": 0}]},
            {
                invalid("spec.ports[0].port", "0", "must be between 1 and 65535, inclusive"),
                invalid("spec.ports[0].targetPort", "0", "must be between 1 and 65535, inclusive"),
            },
        ),
        (
            {"ports": [{"port": 70000}]},
            {
                invalid("spec.ports[0].port", "70000", "must be between 1 and 65535, inclusive"),
                invalid("spec.ports[0].targetPort", "70000", "must be between 1 and 65535, inclusive"),
            },
        ),
        (
            {"ports": [{"port": 80}, {"port": 81}]},
            {required("spec.ports[0].name"), required("spec.ports[1].name")},
        ),
        (
            {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]},
            {duplicate("spec.ports[1].name", '"a"')},
        ),
        ({"ports": [{"port": 80, "name": "A_"}]}, {invalid("spec.ports[0].name", '"A_"', LABEL)}),
        (
            {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]},
            {
                duplicate(
                    "spec.ports[1]",
                    '{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}',
                )
            },
        ),
        (
            {"ports": [{"port": 80, "protocol": "x"}]},
            {unsupported("spec.ports[0].protocol", '"x"', "SCTP", "TCP", "UDP")},
        ),
        (
            {"ports": [{"port": 80, "targetPort": 70000}]},
            {invalid("spec.ports[0].targetPort", "70000", "must be between 1 and 65535, inclusive")},
        ),
        (
            {"ports": [{"port": 80, "targetPort": "A_"}]},
            {
                invalid("spec.ports[0].targetPort", '"A_"', "must contain at least one letter (a-z)"),
                invalid(
                    "spec.ports[0].targetPort",
                    '"A_"',
                    "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                ),
            },
        ),
        (
            {"ports": [{"port": 80, "appProtocol": "a b"}]},
            {invalid("spec.ports[0].appProtocol", '"a b"', QUALIFIED)},
        ),
        (
            {"ports": [{"port": 80, "nodePort": 30001}]},
            {forbidden("spec.ports[0].nodePort", "may not be used when `type` is 'ClusterIP'")},
        ),
        (
            {"type": "x"},
            {unsupported("spec.type", '"x"', "ClusterIP", "ExternalName", "LoadBalancer", "NodePort")},
        ),
        ({"selector": {"a b": "c"}}, {invalid("spec.selector", '"a b"', QUALIFIED)}),
        ({"sessionAffinity": "x"}, {unsupported("spec.sessionAffinity", '"x"', "ClientIP", "None")}),
        (
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}},
            {
                invalid(
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
                    "86401",
                    "must be greater than 0 and less than 86400",
                )
            },
        ),
        (
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}},
            {
                invalid(
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
                    "0",
                    "must be greater than 0 and less than 86400",
                )
            },
        ),
        (
            {"clusterIP": "x"},
            {
                invalid(
                    "spec.clusterIPs[0]",
                    '"x"',
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                )
            },
        ),
        (
            {"clusterIP": "1.2.3.4"},
            {
                invalid(
                    "spec.clusterIPs",
                    '["1.2.3.4"]',
                    "failed to allocate IP 1.2.3.4: the provided network does not match the current range",
                )
            },
        ),
        (
            {"clusterIP": "010.96.0.4"},
            {invalid("spec.clusterIPs[0]", '"010.96.0.4"', "must not have leading 0s")},
        ),
        (
            {"clusterIP": "10.96.0.0"},
            {
                invalid(
                    "spec.clusterIPs",
                    '["10.96.0.0"]',
                    "failed to allocate IP 10.96.0.0: the provided network does not match the current range",
                )
            },
        ),
        (
            {"clusterIP": "10.96.255.255"},
            {
                invalid(
                    "spec.clusterIPs",
                    '["10.96.255.255"]',
                    "failed to allocate IP 10.96.255.255: the provided network does not match the current range",
                )
            },
        ),
        (
            {"clusterIP": "10.96.0.1"},
            {
                invalid(
                    "spec.clusterIPs",
                    '["10.96.0.1"]',
                    "failed to allocate IP 10.96.0.1: provided IP is already allocated",
                )
            },
        ),
        (
            {"clusterIP": "fd00::1"},
            {invalid("spec.clusterIPs[0]", '["fd00::1"]', "IPv6 is not configured on this cluster")},
        ),
        (
            {"clusterIP": "::ffff:1.2.3.4"},
            {invalid("spec.clusterIPs[0]", '"::ffff:1.2.3.4"', "must not be an IPv4-mapped IPv6 address")},
        ),
        (
            {"clusterIPs": ["10.96.3.3"]},
            {invalid("spec.clusterIPs", '["10.96.3.3"]', "must be empty when `clusterIP` is not specified")},
        ),
        (
            {"clusterIP": "10.96.3.4", "clusterIPs": ["10.96.3.5"]},
            {invalid("spec.clusterIPs", '["10.96.3.5"]', "first value must match `clusterIP`")},
        ),
        (
            {"clusterIP": "10.96.3.4", "clusterIPs": ["10.96.3.4", "10.96.3.5"]},
            {
                invalid(
                    "spec.clusterIPs",
                    '["10.96.3.4","10.96.3.5"]',
                    "may specify no more than one IP for each IP family",
                )
            },
        ),
        (
            {"clusterIP": "None", "clusterIPs": ["None", "10.96.3.5"]},
            {invalid("spec.clusterIPs", '["None","10.96.3.5"]', "'None' must be the first and only value")},
        ),
        (
            {"type": "NodePort", "clusterIP": "None"},
            {invalid("spec.clusterIPs[0]", '"None"', "may not be set to 'None' for NodePort services")},
        ),
        (
            {"type": "LoadBalancer", "clusterIP": "None"},
            {invalid("spec.clusterIPs[0]", '"None"', "may not be set to 'None' for LoadBalancer services")},
        ),
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            {
                invalid(
                    "spec.ipFamilyPolicy",
                    '"RequireDualStack"',
                    "this cluster is not configured for dual-stack services",
                )
            },
        ),
        (
            {"ipFamilyPolicy": "x"},
            {unsupported("spec.ipFamilyPolicy", '"x"', "PreferDualStack", "RequireDualStack", "SingleStack")},
        ),
        (
            {"ipFamilies": ["IPv6"]},
            {invalid("spec.ipFamilies[0]", '"IPv6"', "not configured on this cluster")},
        ),
        (
            {"ipFamilies": ["IPv4", "IPv6"]},
            {
                invalid(
                    "spec.ipFamilyPolicy",
                    '"SingleStack"',
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
                )
            },
        ),
        ({"ipFamilies": ["IPv4", "IPv4"]}, {duplicate("spec.ipFamilies[1]", '"IPv4"')}),
        ({"ipFamilies": ["x"]}, {unsupported("spec.ipFamilies[0]", '"x"', "IPv4", "IPv6")}),
        (
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]},
            {
                invalid(
                    "spec.ports[0].nodePort",
                    "80",
                    "provided port is not in the valid range. The range of valid ports is 30000-32767",
                )
            },
        ),
        (
            {
                "type": "NodePort",
                "ports": [
                    {"port": 80, "name": "a", "nodePort": 31112},
                    {"port": 81, "name": "b", "nodePort": 31112},
                ],
            },
            {invalid("spec.ports[1].nodePort", "31112", "provided port is already allocated")},
        ),
        (
            {"externalTrafficPolicy": "Local"},
            {
                invalid(
                    "spec.externalTrafficPolicy",
                    '"Local"',
                    "may only be set for externally-accessible services",
                )
            },
        ),
        (
            {"type": "NodePort", "externalTrafficPolicy": "x"},
            {unsupported("spec.externalTrafficPolicy", '"x"', "Cluster", "Local")},
        ),
        (
            {"internalTrafficPolicy": "x"},
            {unsupported("spec.internalTrafficPolicy", '"x"', "Cluster", "Local")},
        ),
        (
            {"healthCheckNodePort": 31119},
            {
                invalid(
                    "spec.healthCheckNodePort",
                    "31119",
                    "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
                )
            },
        ),
        (
            {"trafficDistribution": "x"},
            {
                unsupported(
                    "spec.trafficDistribution", '"x"', "PreferClose", "PreferSameZone", "PreferSameNode"
                )
            },
        ),
        (
            {"loadBalancerClass": "a/b"},
            {forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'")},
        ),
        (
            {"type": "LoadBalancer", "loadBalancerClass": "a b"},
            {invalid("spec.loadBalancerClass", '"a b"', QUALIFIED)},
        ),
        (
            {"allocateLoadBalancerNodePorts": False},
            {
                forbidden(
                    "spec.allocateLoadBalancerNodePorts", "may only be used when `type` is 'LoadBalancer'"
                )
            },
        ),
        (
            {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
            {forbidden("spec.LoadBalancerSourceRanges", "may only be used when `type` is 'LoadBalancer'")},
        ),
        (
            {"type": "LoadBalancer", "loadBalancerSourceRanges": ["1.2.3.4/24", "x", "010.0.0.0/8"]},
            {
                invalid(
                    "spec.LoadBalancerSourceRanges[0]",
                    '"1.2.3.4/24"',
                    "must not have bits set beyond the prefix length",
                ),
                invalid(
                    "spec.LoadBalancerSourceRanges[1]",
                    '"x"',
                    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                ),
                invalid(
                    "spec.LoadBalancerSourceRanges[2]",
                    '"010.0.0.0/8"',
                    "must not have leading 0s in IP or prefix length",
                ),
            },
        ),
        (
            {"externalIPs": ["127.0.0.1"]},
            {
                invalid(
                    "spec.externalIPs[0]",
                    '"127.0.0.1"',
                    "may not be in the loopback range (127.0.0.0/8, ::1/128)",
                )
            },
        ),
        (
            {"externalIPs": ["x"]},
            {
                invalid(
                    "spec.externalIPs[0]",
                    '"x"',
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                )
            },
        ),
        (
            {"externalIPs": ["0.0.0.0"]},
            {invalid("spec.externalIPs[0]", '"0.0.0.0"', "may not be unspecified (0.0.0.0)")},
        ),
        ({"type": "ExternalName"}, {required("spec.externalName")}),
        ({"type": "ExternalName", "externalName": "A_"}, {invalid("spec.externalName", '"A_"', SUBDOMAIN)}),
        (
            {
                "type": "ExternalName",
                "externalName": "a",
                "clusterIP": "None",
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
            },
            {
                forbidden("spec.clusterIPs", "may not be set for ExternalName services"),
                forbidden("spec.ipFamilies", "may not be set for ExternalName services"),
                forbidden("spec.ipFamilyPolicy", "may not be set for ExternalName services"),
            },
        ),
    ],
)
async def test_an_unsound_service(api, services, spec, causes):
    refused = await api.create(services, service(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


@pytest.mark.parametrize("named", ["1a", "a.b", "A"])
async def test_a_service_is_named_like_a_label(api, services, named):
    answer = await api.create(services, service(named))
    assert (answer.status == 201) == (named == "1a")
    if answer.status != 201:
        problem = LABEL if named == "A" else "must not contain dots"
        assert answer.causes == {invalid("metadata.name", f'"{named}"', problem)}


async def test_an_address_belongs_to_one_service_until_it_is_gone(api, services):
    address = (await api.create(services, service()))["spec"]["clusterIP"]
    refused = await api.create(services, service("b", clusterIP=address))
    told = f'["{address}"]', f"failed to allocate IP {address}: provided IP is already allocated"
    assert refused.causes == {invalid("spec.clusterIPs", *told)}
    await api.delete(f"{services}/a")
    assert (await api.create(services, service("b", clusterIP=address))).status == 201


async def test_a_port_of_nodes_belongs_to_one_service_until_it_has_another_type(api, services):
    (number,) = numbers(await api.create(services, service(type="NodePort")))
    assert 30000 <= number <= 32767
    wanted = service("b", type="NodePort", ports=[{"port": 80, "nodePort": number}])
    refused = await api.create(services, wanted)
    told = invalid("spec.ports[0].nodePort", str(number), "provided port is already allocated")
    assert refused.causes == {told}
    changed = await api.merge(f"{services}/a", {"spec": {"type": "ClusterIP"}})
    assert chosen(changed) == STORED
    assert numbers(changed) == [None]
    assert (await api.create(services, wanted)).status == 201


async def test_ports_of_one_number_share_a_port_of_nodes(api, services):
    ports = [
        {"port": 53, "name": "t"},
        {"port": 53, "name": "u", "protocol": "UDP"},
        {"port": 80, "name": "h"},
    ]
    first, second, other = numbers(await api.create(services, service(type="NodePort", ports=ports)))
    assert first == second != other


async def test_a_replace_keeps_what_was_given(api, services):
    made = await api.create(services, service(type="NodePort"))
    replaced = await api.replace(
        f"{services}/a", service(type="NodePort", ports=[{"port": 81}], selector={"a": "b"})
    )
    assert replaced["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert numbers(replaced) == numbers(made)
    assert replaced["spec"]["selector"] == {"a": "b"}


async def test_a_replace_creates_what_is_missing(api, services):
    assert (await api.replace(f"{services}/a", service())).status == 201


async def test_nothing_is_given_in_a_dry_run_for_good(api, services):
    wanted = service(clusterIP="10.96.100.100")
    assert (await api.create(services, wanted, dryRun="All")).status == 201
    assert (await api.create(services, wanted)).status == 201


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"clusterIP": "10.96.200.201"}, "spec.clusterIPs[0]"),
        ({"clusterIP": "10.96.200.201", "clusterIPs": ["10.96.200.201"]}, "spec.clusterIPs[0]"),
        ({"clusterIP": "None"}, "spec.clusterIPs[0]"),
    ],
)
async def test_an_address_cannot_be_changed(api, services, spec, field):
    await api.create(services, service())
    refused = await api.merge(f"{services}/a", {"spec": spec})
    assert refused.causes == {invalid(field, f'["{spec["clusterIP"]}"]', ONCE)}


@pytest.mark.parametrize("spec", [{"clusterIP": None}, {"clusterIP": None, "clusterIPs": None}])
async def test_an_address_cannot_be_given_back(api, services, spec):
    made = await api.create(services, service())
    changed = await api.merge(f"{services}/a", {"spec": spec})
    assert changed["spec"] == made["spec"]


async def test_a_balancers_class_is_for_good(api, services):
    await api.create(services, service(type="LoadBalancer", loadBalancerClass="a/b"))
    refused = await api.merge(f"{services}/a", {"spec": {"loadBalancerClass": "a/c"}})
    assert refused.causes == {invalid("spec.loadBalancerClass", '"a/c"', ONCE)}


async def test_another_type_takes_back_what_it_has_no_use_for(api, services):
    await api.create(services, service(type="LoadBalancer", externalTrafficPolicy="Local"))
    ingress = {"ingress": [{"ip": "1.2.3.4", "ipMode": "Proxy"}]}
    written = await api.merge(f"{services}/a/status", {"status": {"loadBalancer": ingress}})
    assert written["status"] == {"loadBalancer": ingress}
    assert written["spec"]["healthCheckNodePort"] >= 30000
    changed = await api.merge(f"{services}/a", {"spec": {"type": "ClusterIP"}})
    assert chosen(changed) == STORED
    assert changed["status"] == {"loadBalancer": {}}
    named = await api.merge(f"{services}/a", {"spec": {"type": "ExternalName", "externalName": "x"}})
    assert named["spec"] == {
        "type": "ExternalName",
        "externalName": "x",
        "ports": [PORT],
        "sessionAffinity": "None",
    }
    again = await api.merge(f"{services}/a", {"spec": {"type": "ClusterIP", "externalName": None}})
    assert chosen(again) == STORED
    assert again["spec"]["clusterIP"].startswith("10.96.")


async def test_the_status_of_a_balancer(api, services):
    await api.create(services, service(type="LoadBalancer"))
    points = [{"ip": "x"}, {"hostname": "1.2.3.4", "ipMode": "VIP"}, {"ip": "1.2.3.4", "ipMode": "x"}]
    refused = await api.merge(f"{services}/a/status", {"status": {"loadBalancer": {"ingress": points}}})
    at = "status.loadBalancer.ingress"
    assert refused.causes == {
        invalid(f"{at}[0].ip", '"x"', "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        invalid(f"{at}[1].hostname", '"1.2.3.4"', "must be a DNS name, not an IP address"),
        forbidden(f"{at}[1].ipMode", "may not be specified when `ip` is not set"),
        unsupported(f"{at}[2].ipMode", '"x"', "Proxy", "VIP"),
    }
    told = await api.merge(
        f"{services}/a/status", {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}
    )
    assert told["status"] == {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}}


async def test_only_a_balancer_has_a_status(api, services):
    await api.create(services, service())
    ingress = {"ingress": [{"ip": "1.2.3.4"}]}
    refused = await api.merge(f"{services}/a/status", {"status": {"loadBalancer": ingress}})
    told = "may only be used when `spec.type` is 'LoadBalancer'"
    assert refused.causes == {forbidden("status.loadBalancer.ingress", told)}


async def test_services_are_selected_by_address_and_type(api, services):
    made = await api.create(services, service())
    await api.create(services, service("b", clusterIP="None"))
    await api.create(services, service("c", type="NodePort"))
    for selector, names in (
        ("spec.type=NodePort", ["c"]),
        ("spec.clusterIP=None", ["b"]),
        (f"spec.clusterIP={made['spec']['clusterIP']}", ["a"]),
    ):
        found = await api.get(services, fieldSelector=selector)
        assert [item["metadata"]["name"] for item in found["items"]] == names
    refused = await api.get(services, fieldSelector="spec.x=1")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.endswith("field label not supported: spec.x")


async def test_nobody_manages_what_was_given(api, services):
    config = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 80}]},
    }
    made = await api.apply(f"{services}/a", config)
    (entry,) = made.meta["managedFields"]
    assert entry["fieldsV1"] == {
        "f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}}
    }


async def test_minimal_endpoints(api, endpoints):
    subset = {"addresses": [{"ip": "1.2.3.5"}, {"ip": "1.2.3.4"}], "ports": [{"port": 80}]}
    made = await api.create(endpoints, {"metadata": {"name": "a"}, "subsets": [subset]})
    assert made["subsets"] == [{**subset, "ports": [{"port": 80, "protocol": "TCP"}]}]
    empty = await api.create(endpoints, {"metadata": {"name": "b"}})
    assert empty.body.keys() == {"kind", "apiVersion", "metadata"}


@pytest.mark.parametrize(
    ("subset", "causes"),
    [
        ({}, {required("subsets[0]", "must specify `addresses` or `notReadyAddresses`")}),
        (
            {"addresses": [{"ip": ""}]},
            {
                invalid("subsets[0].addresses[0].ip", '""', "must be a valid IP address"),
                invalid(
                    "subsets[0].addresses[0].ip",
                    '""',
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ),
            },
        ),
        (
            {"addresses": [{"ip": "x"}]},
            {
                invalid("subsets[0].addresses[0].ip", '"x"', "must be a valid IP address"),
                invalid(
                    "subsets[0].addresses[0].ip",
                    '"x"',
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ),
            },
        ),
        (
            {"addresses": [{"ip": "127.0.0.1"}]},
            {
                invalid(
                    "subsets[0].addresses[0].ip",
                    '"127.0.0.1"',
                    "may not be in the loopback range (127.0.0.0/8, ::1/128)",
                )
            },
        ),
        (
            {"addresses": [{"ip": "169.254.1.1"}]},
            {
                invalid(
                    "subsets[0].addresses[0].ip",
                    '"169.254.1.1"',
                    "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
                )
            },
        ),
        (
            {"addresses": [{"ip": "224.0.0.1"}]},
            {
                invalid(
                    "subsets[0].addresses[0].ip",
                    '"224.0.0.1"',
                    "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
                )
            },
        ),
        (
            {"addresses": [{"ip": "0.0.0.0"}]},
            {invalid("subsets[0].addresses[0].ip", '"0.0.0.0"', "may not be unspecified (0.0.0.0)")},
        ),
        (
            {"addresses": [{"ip": "fe80::1"}]},
            {
                invalid(
                    "subsets[0].addresses[0].ip",
                    '"fe80::1"',
                    "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
                )
            },
        ),
        (
            {"addresses": [{"ip": "1.2.3.4", "hostname": "A_"}]},
            {invalid("subsets[0].addresses[0].hostname", '"A_"', LABEL)},
        ),
        (
            {"notReadyAddresses": [{"ip": "1.2.3.4", "nodeName": "A_"}]},
            {invalid("subsets[0].notReadyAddresses[0].nodeName", '"A_"', SUBDOMAIN)},
        ),
        (
            {"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 0}]},
            {invalid("subsets[0].ports[0].port", "0", "must be between 1 and 65535, inclusive")},
        ),
        (
            {"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 1}, {"port": 2, "name": "A_"}]},
            {required("subsets[0].ports[0].name"), invalid("subsets[0].ports[1].name", '"A_"', LABEL)},
        ),
        (
            {"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 1, "protocol": "x", "appProtocol": "a b"}]},
            {
                invalid("subsets[0].ports[0].appProtocol", '"a b"', QUALIFIED),
                unsupported("subsets[0].ports[0].protocol", '"x"', "SCTP", "TCP", "UDP"),
            },
        ),
    ],
)
async def test_unsound_endpoints(api, endpoints, subset, causes):
    refused = await api.create(endpoints, {"metadata": {"name": "a"}, "subsets": [subset]})
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_minimal_slice(api, slices):
    made = await api.create(slices, slice_(endpoints=[{"addresses": ["1.2.3.4"]}], ports=[{"port": 80}]))
    assert made["endpoints"] == [{"addresses": ["1.2.3.4"], "conditions": {}}]
    assert made["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
    assert made.meta["generation"] == 1


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        ({"addressType": ""}, {required("addressType")}),
        ({"addressType": "x"}, {unsupported("addressType", '"x"', "FQDN", "IPv4", "IPv6")}),
        (
            {"endpoints": [{"addresses": []}]},
            {required("endpoints[0].addresses")},
        ),
        (
            {"endpoints": [{"addresses": ["x"]}]},
            {
                invalid(
                    "endpoints[0].addresses[0]",
                    '"x"',
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                )
            },
        ),
        (
            {"endpoints": [{"addresses": ["fd00::1"]}]},
            {invalid("endpoints[0].addresses", '"fd00::1"', "must be an IPv4 address")},
        ),
        (
            {"endpoints": [{"addresses": ["127.0.0.1"]}]},
            {
                invalid(
                    "endpoints[0].addresses[0]",
                    '"127.0.0.1"',
                    "may not be in the loopback range (127.0.0.0/8, ::1/128)",
                )
            },
        ),
        (
            {"endpoints": [{"addresses": ["1.2.3.4"], "nodeName": "A_"}]},
            {invalid("endpoints[0].nodeName", '"A_"', SUBDOMAIN)},
        ),
        (
            {"endpoints": [{"addresses": ["1.2.3.4"], "hostname": "A_"}]},
            {invalid("endpoints[0].hostname", '"A_"', LABEL)},
        ),
        (
            {
                "endpoints": [
                    {
                        "addresses": ["1.2.3.4"],
                        "hints": {
                            "forZones": [{"name": "a"}, {"name": "a"}, {"name": "b c"}],
                            "forNodes": [{"name": "A_"}],
                        },
                    }
                ]
            },
            {
                invalid("endpoints[0].hints.forNodes[0].name", '"A_"', SUBDOMAIN),
                duplicate("endpoints[0].hints.forZones[1].name", '"a"'),
                invalid(
                    "endpoints[0].hints.forZones[2].name",
                    '"b c"',
                    LABEL_VALUE,
                ),
            },
        ),
        (
            {"addressType": "IPv6", "endpoints": [{"addresses": ["1.2.3.4"]}]},
            {invalid("endpoints[0].addresses", '"1.2.3.4"', "must be an IPv6 address")},
        ),
        (
            {"addressType": "IPv6", "endpoints": [{"addresses": ["FD00::1"]}]},
            {invalid("endpoints[0].addresses[0]", '"FD00::1"', 'must be in canonical form ("fd00::1")')},
        ),
        (
            {"addressType": "FQDN", "endpoints": [{"addresses": ["a"]}]},
            {
                invalid(
                    "endpoints[0].addresses[0]",
                    '"a"',
                    "should be a domain with at least two segments separated by dots",
                )
            },
        ),
        (
            {"addressType": "FQDN", "endpoints": [{"addresses": ["A_"]}]},
            {invalid("endpoints[0].addresses[0]", '"A_"', SUBDOMAIN)},
        ),
        ({"ports": [{"name": "A_"}]}, {invalid("ports[0].name", '"A_"', LABEL)}),
        ({"ports": [{"name": "x"}, {"name": "x"}]}, {duplicate("ports[1].name", '"x"')}),
        ({"ports": [{"protocol": "x"}]}, {unsupported("ports[0].protocol", '"x"', "SCTP", "TCP", "UDP")}),
        ({"ports": [{"appProtocol": "a b"}]}, {invalid("ports[0].appProtocol", '"a b"', QUALIFIED)}),
    ],
)
async def test_an_unsound_slice(api, slices, fields, causes):
    refused = await api.create(slices, slice_(**fields))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_slice_keeps_its_type_and_counts_changes_of_labels(api, slices):
    await api.create(slices, slice_())
    refused = await api.merge(f"{slices}/a", {"addressType": "IPv6"})
    assert refused.causes == {invalid("addressType", "null", "field is immutable")}
    assert (await api.merge(f"{slices}/a", {"metadata": {"annotations": {"a": "b"}}})).meta["generation"] == 1
    assert (await api.merge(f"{slices}/a", {"metadata": {"labels": {"a": "b"}}})).meta["generation"] == 2
    assert (await api.merge(f"{slices}/a", {"ports": [{"port": 1}]})).meta["generation"] == 3


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        ({}, []),
        ({"externalName": "x"}, ['spec.externalName is ignored when spec.type is not "ExternalName"']),
        (
            {"externalIPs": ["1.2.3.4"]},
            ["spec.externalIPs is deprecated and may no longer be implemented in some clusters"],
        ),
        (
            {"clusterIP": "None", "sessionAffinity": "ClientIP"},
            ["spec.SessionAffinity is ignored for headless services"],
        ),
        (
            {"clusterIP": "None", "loadBalancerIP": "1.2.3.4"},
            ["spec.loadBalancerIP is ignored for headless services"],
        ),
        (
            {"trafficDistribution": "PreferClose"},
            ['spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'],
        ),
    ],
)
async def test_what_is_said_about_a_sound_service(api, services, spec, warnings):
    made = await api.create(services, service(**spec))
    assert (made.status, made.warnings) == (201, warnings)
    changed = await api.merge(f"{services}/a", {"metadata": {"labels": {"a": "b"}}})
    assert changed.warnings == warnings
