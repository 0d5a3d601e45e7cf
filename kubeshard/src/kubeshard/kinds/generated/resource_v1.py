"""Classes of resource.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of
the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.conditions import Condition
from kubeshard.core.objects import KubeObject, ObjectMeta, Struct, field
from kubeshard.kinds.generated.core_v1_references import NodeSelector


class OpaqueDeviceConfiguration(Struct):
    """OpaqueDeviceConfiguration contains configuration parameters for a driver in a format defined by the
    driver vendor.
    """

    driver: str
    """Driver is used to determine which kubelet plugin needs to be passed these configuration parameters."""
    parameters: Any
    """Parameters can contain arbitrary data."""


class DeviceClassConfiguration(Struct):
    """DeviceClassConfiguration is used in DeviceClass."""

    opaque: OpaqueDeviceConfiguration | None = None
    """Opaque provides driver-specific configuration parameters."""


class CELDeviceSelector(Struct):
    """CELDeviceSelector contains a CEL expression for selecting a device."""

    expression: str
    """Expression is a CEL expression which evaluates a single device."""


class DeviceSelector(Struct):
    """DeviceSelector must have exactly one field set."""

    cel: CELDeviceSelector | None = None
    """CEL contains a CEL expression for selecting a device."""


class DeviceClassSpec(Struct):
    """DeviceClassSpec is used in a [DeviceClass] to define what can be allocated and how to configure it."""

    config: tuple[DeviceClassConfiguration, ...] | None = None
    """Config defines configuration parameters that apply to each device that is claimed via this class."""
    extended_resource_name: str | None = None
    """ExtendedResourceName is the extended resource name for the devices of this class."""
    selectors: tuple[DeviceSelector, ...] | None = None
    """Each selector must be satisfied by a device which is claimed via this class."""


class DeviceClass(KubeObject, group="resource.k8s.io", version="v1", namespaced=False):
    """DeviceClass is a vendor- or admin-provided resource that contains device configuration and
    selectors.
    """

    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)
    """Spec defines what can be allocated and how to configure it."""


class DeviceTaintSelector(Struct):
    """DeviceTaintSelector defines which device(s) a DeviceTaintRule applies to."""

    device: str | None = None
    """If device is set, only devices with that name are selected."""
    driver: str | None = None
    """If driver is set, only devices from that driver are selected."""
    pool: str | None = None
    """If pool is set, only devices in that pool are selected."""


class DeviceTaint(Struct):
    """The device this taint is attached to has the "effect" on any claim which does not tolerate the taint
    and, through the claim, to pods using the claim.
    """

    effect: str
    """The effect of the taint on claims that do not tolerate the taint and through such claims on the pods
    using them. One of NoExecute, NoSchedule, None.
    """
    key: str
    """The taint key to be applied to a device."""
    time_added: str | None = None
    """TimeAdded represents the time at which the taint was added or (only in a DeviceTaintRule) the effect
    was modified.
    """
    value: str | None = None
    """The taint value corresponding to the taint key."""


class DeviceTaintRuleSpec(Struct):
    """DeviceTaintRuleSpec specifies the selector and one taint."""

    taint: DeviceTaint
    """The taint that gets applied to matching devices."""
    device_selector: DeviceTaintSelector | None = None
    """DeviceSelector defines which device(s) the taint is applied to."""


class DeviceTaintRuleStatus(Struct):
    """DeviceTaintRuleStatus provides information about an on-going pod eviction."""

    conditions: tuple[Condition, ...] | None = None
    """Conditions provide information about the state of the DeviceTaintRule and the cluster at some point in
    time, in a machine-readable and human-readable format.
    """


class DeviceTaintRule(KubeObject, group="resource.k8s.io", version="v1", namespaced=False):
    """DeviceTaintRule adds one taint to all devices which match the selector."""

    spec: DeviceTaintRuleSpec
    """Spec specifies the selector and one taint."""
    status: DeviceTaintRuleStatus = field(default_factory=DeviceTaintRuleStatus)
    """Status provides information about what was requested in the spec."""


class DeviceClaimConfiguration(Struct):
    """DeviceClaimConfiguration is used for configuration parameters in DeviceClaim."""

    opaque: OpaqueDeviceConfiguration | None = None
    """Opaque provides driver-specific configuration parameters."""
    requests: tuple[str, ...] | None = None
    """Requests lists the names of requests where the configuration applies."""


class DeviceConstraint(Struct):
    """DeviceConstraint must have exactly one field set besides Requests."""

    distinct_attribute: str | None = None
    """DistinctAttribute requires that all devices in question have this attribute and that its type and value
    are unique across those devices.
    """
    match_attribute: str | None = None
    """MatchAttribute requires that all devices in question have this attribute and that its type and value
    are the same across those devices.
    """
    requests: tuple[str, ...] | None = None
    """Requests is a list of the one or more requests in this claim which must co-satisfy this constraint."""


class CapacityRequirements(Struct):
    """CapacityRequirements defines the capacity requirements for a specific device request."""

    requests: Mapping[str, str] | None = None
    """Requests represent individual device resource requests for distinct resources, all of which must be
    provided by the device.
    """


class DeviceDerivedAttribute(Struct):
    """DeviceDerivedAttribute defines a derived attribute computed via CEL."""

    expression: str
    """Expression is a CEL expression evaluated against each candidate device."""
    name: str
    """Name is the identifier for this derived attribute, used in constraints."""


class DeviceToleration(Struct):
    """The ResourceClaim this DeviceToleration is attached to tolerates any taint that matches the triple
    <key,value,effect> using the matching operator <operator>.
    """

    effect: str | None = None
    """Effect indicates the taint effect to match. One of NoExecute, NoSchedule, None."""
    key: str | None = None
    """Key is the taint key that the toleration applies to."""
    operator: str | None = None
    """Operator represents a key's relationship to the value. One of Equal, Exists."""
    toleration_seconds: int | None = None
    """TolerationSeconds represents the period of time the toleration (which must be of effect NoExecute,
    otherwise this field is ignored) tolerates the taint.
    """
    value: str | None = None
    """Value is the taint value the toleration matches to."""


class ExactDeviceRequest(Struct):
    """ExactDeviceRequest is a request for one or more identical devices."""

    device_class_name: str
    """DeviceClassName references a specific DeviceClass, which can define additional configuration and
    selectors to be inherited by this request.
    """
    admin_access: bool | None = None
    """AdminAccess indicates that this is a claim for administrative access to the device(s)."""
    allocation_mode: str | None = None
    """AllocationMode and its related fields define how devices are allocated to satisfy this request. One of
    All, ExactCount.
    """
    capacity: CapacityRequirements | None = None
    """Capacity define resource requirements against each capacity."""
    count: int | None = None
    """Count is used only when the count mode is "ExactCount"."""
    derived_attributes: tuple[DeviceDerivedAttribute, ...] | None = None
    """DerivedAttributes defines a set of virtual attributes computed via CEL expressions for each candidate
    device.
    """
    selectors: tuple[DeviceSelector, ...] | None = None
    """Selectors define criteria which must be satisfied by a specific device in order for that device to be
    considered for this request.
    """
    tolerations: tuple[DeviceToleration, ...] | None = None
    """If specified, the request's tolerations."""


class DeviceSubRequest(Struct):
    """DeviceSubRequest describes a request for device provided in the
    claim.spec.devices.requests[].firstAvailable array.
    """

    device_class_name: str
    """DeviceClassName references a specific DeviceClass, which can define additional configuration and
    selectors to be inherited by this subrequest.
    """
    name: str
    """Name can be used to reference this subrequest in the list of constraints or the list of configurations
    for the claim.
    """
    allocation_mode: str | None = None
    """AllocationMode and its related fields define how devices are allocated to satisfy this subrequest. One
    of All, ExactCount.
    """
    capacity: CapacityRequirements | None = None
    """Capacity define resource requirements against each capacity."""
    count: int | None = None
    """Count is used only when the count mode is "ExactCount"."""
    derived_attributes: tuple[DeviceDerivedAttribute, ...] | None = None
    """DerivedAttributes defines a set of virtual attributes computed via CEL expressions for each candidate
    device.
    """
    selectors: tuple[DeviceSelector, ...] | None = None
    """Selectors define criteria which must be satisfied by a specific device in order for that device to be
    considered for this subrequest.
    """
    tolerations: tuple[DeviceToleration, ...] | None = None
    """If specified, the request's tolerations."""


class DeviceRequest(Struct):
    """DeviceRequest is a request for devices required for a claim."""

    name: str
    """Name can be used to reference this request in a pod.spec.containers[].resources.claims entry and in a
    constraint of the claim.
    """
    exactly: ExactDeviceRequest | None = None
    """Exactly specifies the details for a single request that must be met exactly for the request to be
    satisfied.
    """
    first_available: tuple[DeviceSubRequest, ...] | None = None
    """FirstAvailable contains subrequests, of which exactly one will be selected by the scheduler."""


class DeviceClaim(Struct):
    """DeviceClaim defines how to request devices with a ResourceClaim."""

    config: tuple[DeviceClaimConfiguration, ...] | None = None
    """This field holds configuration for multiple potential drivers which could satisfy requests in this
    claim.
    """
    constraints: tuple[DeviceConstraint, ...] | None = None
    """These constraints must be satisfied by the set of devices that get allocated for the claim."""
    requests: tuple[DeviceRequest, ...] | None = None
    """Requests represent individual requests for distinct devices which must all be satisfied."""


class ResourceClaimSpec(Struct):
    """ResourceClaimSpec defines what is being requested in a ResourceClaim and how to configure it."""

    devices: DeviceClaim | None = None
    """Devices defines how to request devices."""


class DeviceAllocationConfiguration(Struct):
    """DeviceAllocationConfiguration gets embedded in an AllocationResult."""

    source: str
    """Source records whether the configuration comes from a class and thus is not something that a normal
    user would have been able to set or from a claim. One of FromClaim, FromClass.
    """
    opaque: OpaqueDeviceConfiguration | None = None
    """Opaque provides driver-specific configuration parameters."""
    requests: tuple[str, ...] | None = None
    """Requests lists the names of requests where the configuration applies."""


class DeviceRequestAllocationResult(Struct):
    """DeviceRequestAllocationResult contains the allocation result for one request."""

    device: str
    """Device references one device instance via its name in the driver's resource pool."""
    driver: str
    """Driver specifies the name of the DRA driver whose kubelet plugin should be invoked to process the
    allocation once the claim is needed on a node.
    """
    pool: str
    """This name together with the driver name and the device name field identify which device was allocated
    (`<driver name>/<pool name>/<device name>`).
    """
    request: str
    """Request is the name of the request in the claim which caused this device to be allocated."""
    admin_access: bool | None = None
    """AdminAccess indicates that this device was allocated for administrative access."""
    binding_conditions: tuple[str, ...] | None = None
    """BindingConditions contains a copy of the BindingConditions from the corresponding ResourceSlice at the
    time of allocation.
    """
    binding_failure_conditions: tuple[str, ...] | None = None
    """BindingFailureConditions contains a copy of the BindingFailureConditions from the corresponding
    ResourceSlice at the time of allocation.
    """
    consumed_capacity: Mapping[str, str] | None = None
    """ConsumedCapacity tracks the amount of capacity consumed per device as part of the claim request."""
    share_id: str | None = field(default=None, name="shareID")
    """ShareID uniquely identifies an individual allocation share of the device, used when the device supports
    multiple simultaneous allocations.
    """
    skip_node_operations: tuple[str, ...] | None = None
    """SkipNodeOperations lists node-local resource operations (gRPC calls) that will be skipped for this
    allocated device when determining whether operations are necessary on the node.
    """
    tolerations: tuple[DeviceToleration, ...] | None = None
    """A copy of all tolerations specified in the request at the time when the device got allocated."""


class DeviceAllocationResult(Struct):
    """DeviceAllocationResult is the result of allocating devices."""

    config: tuple[DeviceAllocationConfiguration, ...] | None = None
    """This field is a combination of all the claim and class configuration parameters."""
    results: tuple[DeviceRequestAllocationResult, ...] | None = None
    """Results lists all allocated devices."""


class AllocationResult(Struct):
    """AllocationResult contains attributes of an allocated resource."""

    allocation_timestamp: str | None = None
    """AllocationTimestamp stores the time when the resources were allocated."""
    devices: DeviceAllocationResult | None = None
    """Devices is the result of allocating devices."""
    node_selector: NodeSelector | None = None
    """NodeSelector defines where the allocated resources are available."""


class NetworkDeviceData(Struct):
    """NetworkDeviceData provides network-related details for the allocated device."""

    hardware_address: str | None = None
    """HardwareAddress represents the hardware address (e.g."""
    interface_name: str | None = None
    """InterfaceName specifies the name of the network interface associated with the allocated device."""
    ips: tuple[str, ...] | None = None
    """IPs lists the network addresses assigned to the device's network interface."""


class AllocatedDeviceStatus(Struct):
    """AllocatedDeviceStatus contains the status of an allocated device, if the driver chooses to report
    it.
    """

    device: str
    """Device references one device instance via its name in the driver's resource pool."""
    driver: str
    """Driver specifies the name of the DRA driver whose kubelet plugin should be invoked to process the
    allocation once the claim is needed on a node.
    """
    pool: str
    """This name together with the driver name and the device name field identify which device was allocated
    (`<driver name>/<pool name>/<device name>`).
    """
    conditions: tuple[Condition, ...] | None = None
    """Conditions contains the latest observation of the device's state."""
    data: Any = None
    """Data contains arbitrary driver-specific data."""
    network_data: NetworkDeviceData | None = None
    """NetworkData contains network-related information specific to the device."""
    share_id: str | None = field(default=None, name="shareID")
    """ShareID uniquely identifies an individual allocation share of the device."""


class ResourceClaimConsumerReference(Struct):
    """ResourceClaimConsumerReference contains enough information to let you locate the consumer of a
    ResourceClaim.
    """

    name: str
    """Name is the name of resource being referenced."""
    resource: str
    """Resource is the type of resource being referenced, for example "pods"."""
    uid: str
    """UID identifies exactly one incarnation of the resource."""
    api_group: str | None = None
    """APIGroup is the group for the resource being referenced."""


class ResourceClaimStatus(Struct):
    """ResourceClaimStatus tracks whether the resource has been allocated and what the result of that was."""

    allocation: AllocationResult | None = None
    """Allocation is set once the claim has been allocated successfully."""
    devices: tuple[AllocatedDeviceStatus, ...] | None = None
    """Devices contains the status of each device allocated for this claim, as reported by the driver."""
    reserved_for: tuple[ResourceClaimConsumerReference, ...] | None = None
    """ReservedFor indicates which entities are currently allowed to use the claim."""


class ResourceClaim(KubeObject, group="resource.k8s.io", version="v1"):
    """ResourceClaim describes a request for access to resources in the cluster, for use by workloads."""

    spec: ResourceClaimSpec = field(default_factory=ResourceClaimSpec)
    """Spec describes what is being requested and how to configure it."""
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)
    """Status describes whether the claim is ready to use and what has been allocated."""


class ResourceClaimTemplateSpec(Struct):
    """ResourceClaimTemplateSpec contains the metadata and fields for a ResourceClaim."""

    metadata: ObjectMeta | None = None
    """ObjectMeta may contain labels and annotations that will be copied into the ResourceClaim when creating
    it.
    """
    spec: ResourceClaimSpec | None = None
    """Spec for the ResourceClaim."""


class ResourceClaimTemplate(KubeObject, group="resource.k8s.io", version="v1"):
    """ResourceClaimTemplate is used to produce ResourceClaim objects."""

    spec: ResourceClaimTemplateSpec = field(default_factory=ResourceClaimTemplateSpec)
    """Describes the ResourceClaim that is to be generated."""


class DeviceAttribute(Struct):
    """DeviceAttribute must have exactly one field set."""

    bool_: bool | None = None
    """BoolValue is a true/false value."""
    bools: tuple[bool, ...] | None = None
    """BoolValues is a non-empty list of true/false values."""
    int_: int | None = None
    """IntValue is a number."""
    ints: tuple[int, ...] | None = None
    """IntValues is a non-empty list of numbers."""
    string: str | None = None
    """StringValue is a string."""
    strings: tuple[str, ...] | None = None
    """StringValues is a non-empty list of strings."""
    version: str | None = None
    """VersionValue is a semantic version according to semver.org spec 2.0.0."""
    versions: tuple[str, ...] | None = None
    """VersionValues is a non-empty list of semantic versions according to semver.org spec 2.0.0."""


class CapacityRequestPolicyRange(Struct):
    """CapacityRequestPolicyRange defines a valid range for consumable capacity values."""

    min: str
    """Min specifies the minimum capacity allowed for a consumption request."""
    max: str | None = None
    """Max defines the upper limit for capacity that can be requested."""
    step: str | None = None
    """Step defines the step size between valid capacity amounts within the range."""


class CapacityRequestPolicy(Struct):
    """CapacityRequestPolicy defines how requests consume device capacity."""

    default: str | None = None
    """Default specifies how much of this capacity is consumed by a request that does not contain an entry for
    it in DeviceRequest's Capacity.
    """
    valid_range: CapacityRequestPolicyRange | None = None
    """ValidRange defines an acceptable quantity value range in consuming requests."""
    valid_values: tuple[str, ...] | None = None
    """ValidValues defines a set of acceptable quantity values in consuming requests."""


class DeviceCapacity(Struct):
    """DeviceCapacity describes a quantity associated with a device."""

    value: str
    """Value defines how much of a certain capacity that device has."""
    request_policy: CapacityRequestPolicy | None = None
    """RequestPolicy defines how this DeviceCapacity must be consumed when the device is allowed to be shared
    by multiple allocations.
    """


class Counter(Struct):
    """Counter describes a quantity associated with a device."""

    value: str
    """Value defines how much of a certain device counter is available."""


class DeviceCounterConsumption(Struct):
    """DeviceCounterConsumption defines a set of counters that a device will consume from a CounterSet."""

    counter_set: str
    """CounterSet is the name of the set from which the counters defined will be consumed."""
    counters: Mapping[str, Counter]
    """Counters defines the counters that will be consumed by the device."""
    compatibility_groups: tuple[str, ...] | None = None
    """CompatibilityGroups is a list of opaque group names for this counter set consumption."""


class NodeAllocatableMapping(Struct):
    """NodeAllocatableMapping defines how a DRA allocation directly translates into a node allocatable
    resource quantity.
    """

    capacity_key: str | None = None
    """CapacityKey references a capacity name defined as a key in the `spec.devices[*].capacity` map."""
    capacity_multiplier: str | None = None
    """CapacityMultiplier is used as a multiplier for the allocated capacity consumed."""
    device_multiplier: str | None = None
    """DeviceMultiplier is used as a multiplier for the allocated device count in the claim."""


class NodeAllocatableOverhead(Struct):
    """NodeAllocatableOverhead defines auxiliary resource overheads incurred when allocating a device."""

    per_container: str | None = None
    """PerContainer is applied per container reference to the claim."""
    per_pod: str | None = None
    """PerPod is overhead applied once per pod referencing the claim on this node."""


class NodeAllocatableResource(Struct):
    """NodeAllocatableResource defines the translation between the DRA device/capacity units requested to the
    corresponding quantity of the node allocatable resource.
    """

    mapping: NodeAllocatableMapping | None = None
    """Mapping is used when the device directly models a node allocatable resource like standard CPU or memory
    (e.g., with a CPU DRA driver).
    """
    overhead: NodeAllocatableOverhead | None = None
    """Overhead contains fields for modeling auxiliary overhead incurred on node allocatable resources when
    allocating devices that are not themselves modeling a node allocatable resource (e.g., host memory
    overhead for GPUs).
    """


class Device(Struct):
    """Device represents one individual hardware instance that can be selected based on its attributes."""

    name: str
    """Name is unique identifier among all devices managed by the driver in the pool."""
    all_nodes: bool | None = None
    """AllNodes indicates that all nodes have access to the device."""
    allow_multiple_allocations: bool | None = None
    """AllowMultipleAllocations marks whether the device is allowed to be allocated to multiple
    DeviceRequests.
    """
    attributes: Mapping[str, DeviceAttribute] | None = None
    """Attributes defines the set of attributes for this device."""
    binding_conditions: tuple[str, ...] | None = None
    """BindingConditions defines the conditions for proceeding with binding."""
    binding_failure_conditions: tuple[str, ...] | None = None
    """BindingFailureConditions defines the conditions for binding failure."""
    binds_to_node: bool | None = None
    """BindsToNode indicates if the usage of an allocation involving this device has to be limited to exactly
    the node that was chosen when allocating the claim.
    """
    capacity: Mapping[str, DeviceCapacity] | None = None
    """Capacity defines the set of capacities for this device."""
    consumes_counters: tuple[DeviceCounterConsumption, ...] | None = None
    """ConsumesCounters defines a list of references to sharedCounters and the set of counters that the device
    will consume from those counter sets.
    """
    node_allocatable_resources: Mapping[str, NodeAllocatableResource] | None = None
    """NodeAllocatableResources defines the mapping of node resources that are managed by the DRA driver
    exposing this device.
    """
    node_name: str | None = None
    """NodeName identifies the node where the device is available."""
    node_selector: NodeSelector | None = None
    """NodeSelector defines the nodes where the device is available."""
    taints: tuple[DeviceTaint, ...] | None = None
    """If specified, these are the driver-defined taints."""


class ResourcePool(Struct):
    """ResourcePool describes the pool that ResourceSlices belong to."""

    generation: int
    """Generation tracks the change in a pool over time."""
    name: str
    """Name is used to identify the pool."""
    resource_slice_count: int
    """ResourceSliceCount is the total number of ResourceSlices in the pool at this generation number."""


class CounterSet(Struct):
    """CounterSet defines a named set of counters that are available to be used by devices defined in the
    ResourcePool.
    """

    counters: Mapping[str, Counter]
    """Counters defines the set of counters for this CounterSet The name of each counter must be unique in
    that set and must be a DNS label.
    """
    name: str
    """Name defines the name of the counter set."""


class ResourceSliceSpec(Struct):
    """ResourceSliceSpec contains the information published by the driver in one ResourceSlice."""

    driver: str
    """Driver identifies the DRA driver providing the capacity information."""
    pool: ResourcePool
    """Pool describes the pool that this ResourceSlice belongs to."""
    all_nodes: bool | None = None
    """AllNodes indicates that all nodes have access to the resources in the pool."""
    devices: tuple[Device, ...] | None = None
    """Devices lists some or all of the devices in this pool."""
    node_name: str | None = None
    """NodeName identifies the node which provides the resources in this pool."""
    node_selector: NodeSelector | None = None
    """NodeSelector defines which nodes have access to the resources in the pool, when that pool is not
    limited to a single node.
    """
    partition_type_attribute: str | None = None
    """PartitionTypeAttribute names a string device attribute (by fully qualified name, e.g.
    "gpu.example.com/profile") whose value labels each device with its partition type, such as "Full" or
    "Half" for a MIG-style GPU.
    """
    per_device_node_selection: bool | None = None
    """PerDeviceNodeSelection defines whether the access from nodes to resources in the pool is set on the
    ResourceSlice level or on each device.
    """
    shared_counters: tuple[CounterSet, ...] | None = None
    """SharedCounters defines a list of counter sets, each of which has a name and a list of counters
    available.
    """
    skip_node_operations: tuple[str, ...] | None = None
    """SkipNodeOperations lists node-local resource operations (gRPC calls) that will be skipped for the
    devices in this slice when determining whether operations are necessary on the node.
    """


class ResourceSlice(KubeObject, group="resource.k8s.io", version="v1", namespaced=False):
    """ResourceSlice represents one or more resources in a pool of similar resources, managed by a common
    driver.
    """

    spec: ResourceSliceSpec
    """Contains the information published by the driver."""
