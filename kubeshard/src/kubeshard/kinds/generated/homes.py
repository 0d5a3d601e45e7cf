"""Where the names of `kubeshard.kinds` are. Written by `make types`."""

from __future__ import annotations

_MODULES = {
    "kubeshard.core.builtin": """
        ConfigMap Lease LeaseSpec Namespace NamespaceCondition NamespaceSpec NamespaceStatus Secret
    """,
    "kubeshard.core.selectors": """
        LabelSelector LabelSelectorRequirement
    """,
    "kubeshard.kinds.generated.admissionregistration_v1": """
        ApplyConfiguration AuditAnnotation ExpressionWarning JSONPatch MatchCondition MatchResources
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingAdmissionPolicyBindingSpec
        MutatingAdmissionPolicySpec MutatingWebhook MutatingWebhookConfiguration Mutation
        NamedRuleWithOperations ParamKind ParamRef RuleWithOperations ServiceReference TypeChecking
        ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingAdmissionPolicyBindingSpec
        ValidatingAdmissionPolicySpec ValidatingAdmissionPolicyStatus ValidatingWebhook
        ValidatingWebhookConfiguration Validation Variable WebhookClientConfig
    """,
    "kubeshard.kinds.generated.apiextensions_v1": """
        CustomResourceColumnDefinition CustomResourceConversion CustomResourceDefinition
        CustomResourceDefinitionCondition CustomResourceDefinitionNames CustomResourceDefinitionSpec
        CustomResourceDefinitionStatus CustomResourceDefinitionVersion CustomResourceSubresourceScale
        CustomResourceSubresources CustomResourceValidation ExternalDocumentation JSONSchemaProps
        SelectableField ValidationRule WebhookConversion
    """,
    "kubeshard.kinds.generated.apiregistration_v1": """
        APIService APIServiceCondition APIServiceSpec APIServiceStatus
    """,
    "kubeshard.kinds.generated.apps_v1": """
        ControllerRevision DaemonSet DaemonSetCondition DaemonSetSpec DaemonSetStatus
        DaemonSetUpdateStrategy Deployment DeploymentCondition DeploymentSpec DeploymentStatus
        DeploymentStrategy ReplicaSet ReplicaSetCondition ReplicaSetSpec ReplicaSetStatus
        RollingUpdateDaemonSet RollingUpdateDeployment RollingUpdateStatefulSetStrategy StatefulSet
        StatefulSetCondition StatefulSetOrdinals StatefulSetPersistentVolumeClaimRetentionPolicy
        StatefulSetSpec StatefulSetStatus StatefulSetUpdateStrategy
    """,
    "kubeshard.kinds.generated.authentication_v1": """
        SelfSubjectReview SelfSubjectReviewStatus TokenReview TokenReviewSpec TokenReviewStatus UserInfo
    """,
    "kubeshard.kinds.generated.authorization_v1": """
        FieldSelectorAttributes FieldSelectorRequirement LabelSelectorAttributes LocalSubjectAccessReview
        NonResourceAttributes NonResourceRule ResourceAttributes ResourceRule SelfSubjectAccessReview
        SelfSubjectAccessReviewSpec SelfSubjectRulesReview SelfSubjectRulesReviewSpec SubjectAccessReview
        SubjectAccessReviewSpec SubjectAccessReviewStatus SubjectRulesReviewStatus
    """,
    "kubeshard.kinds.generated.autoscaling_v2": """
        ContainerResourceMetricSource ContainerResourceMetricStatus CrossVersionObjectReference
        ExternalMetricSource ExternalMetricStatus HPAScalingPolicy HPAScalingRules HorizontalPodAutoscaler
        HorizontalPodAutoscalerBehavior HorizontalPodAutoscalerCondition HorizontalPodAutoscalerSpec
        HorizontalPodAutoscalerStatus MetricIdentifier MetricSpec MetricStatus MetricTarget
        MetricValueStatus ObjectMetricSource ObjectMetricStatus PodsMetricSource PodsMetricStatus
        ResourceMetricSource ResourceMetricStatus
    """,
    "kubeshard.kinds.generated.batch_v1": """
        CronJob CronJobSpec CronJobStatus Job JobCondition JobSchedulingConfiguration JobSpec JobStatus
        JobTemplateSpec PodFailurePolicy PodFailurePolicyOnExitCodesRequirement
        PodFailurePolicyOnPodConditionsPattern PodFailurePolicyRule SuccessPolicy SuccessPolicyRule
        UncountedTerminatedPods
    """,
    "kubeshard.kinds.generated.certificates_v1": """
        CertificateSigningRequest CertificateSigningRequestCondition CertificateSigningRequestSpec
        CertificateSigningRequestStatus ClusterTrustBundle ClusterTrustBundleSpec PodCertificateRequest
        PodCertificateRequestSpec PodCertificateRequestStatus
    """,
    "kubeshard.kinds.generated.core_v1": """
        Binding ClientIPConfig ComponentCondition ComponentStatus EndpointAddress EndpointSubset Endpoints
        LimitRange LimitRangeItem LimitRangeSpec LoadBalancerIngress LoadBalancerStatus PortStatus
        ResourceQuota ResourceQuotaSpec ResourceQuotaStatus ScopeSelector ScopedResourceSelectorRequirement
        Service ServiceAccount ServicePort ServiceSpec ServiceStatus SessionAffinityConfig
        TopologySelectorLabelRequirement TopologySelectorTerm
    """,
    "kubeshard.kinds.generated.core_v1_nodes": """
        AttachedVolume ConfigMapNodeConfigSource ContainerImage DaemonEndpoint Node NodeAddress
        NodeCondition NodeConfigSource NodeConfigStatus NodeDaemonEndpoints NodeFeatures
        NodePodPreemptionPolicy NodeRuntimeHandler NodeRuntimeHandlerFeatures NodeSpec NodeStatus
        NodeSwapStatus NodeSystemInfo Taint
    """,
    "kubeshard.kinds.generated.core_v1_pod_templates": """
        AWSElasticBlockStoreVolumeSource Affinity AppArmorProfile AzureDiskVolumeSource
        AzureFileVolumeSource CSIVolumeSource Capabilities CephFSVolumeSource CinderVolumeSource
        ClusterTrustBundleProjection ConfigMapEnvSource ConfigMapKeySelector ConfigMapProjection
        ConfigMapVolumeSource Container ContainerPort ContainerResizePolicy ContainerRestartRule
        ContainerRestartRuleOnExitCodes DownwardAPIProjection DownwardAPIVolumeFile DownwardAPIVolumeSource
        EmptyDirVolumeSource EnvFromSource EnvVar EnvVarSource EphemeralContainer EphemeralVolumeSource
        EvictionResponder ExecAction FCVolumeSource FileKeySelector FlexVolumeSource FlockerVolumeSource
        GCEPersistentDiskVolumeSource GRPCAction GitRepoVolumeSource GlusterfsVolumeSource HTTPGetAction
        HTTPHeader HostAlias HostPathVolumeSource ISCSIVolumeSource ImageVolumeSource KeyToPath Lifecycle
        LifecycleHandler ModifyVolumeStatus NFSVolumeSource NodeAffinity ObjectFieldSelector
        PersistentVolumeClaim PersistentVolumeClaimCondition PersistentVolumeClaimSpec
        PersistentVolumeClaimStatus PersistentVolumeClaimTemplate PersistentVolumeClaimVolumeSource
        PhotonPersistentDiskVolumeSource PodAffinity PodAffinityTerm PodAntiAffinity
        PodCertificateProjection PodDNSConfig PodDNSConfigOption PodOS PodReadinessGate PodResourceClaim
        PodSchedulingGate PodSchedulingGroup PodSecurityContext PodSpec PodTemplateSpec PortworxVolumeSource
        PreferredSchedulingTerm Probe ProjectedVolumeSource QuobyteVolumeSource RBDVolumeSource
        ResourceFieldSelector ResourceRequirements SELinuxOptions ScaleIOVolumeSource SeccompProfile
        SecretEnvSource SecretKeySelector SecretProjection SecretVolumeSource SecurityContext
        ServiceAccountTokenProjection SleepAction StorageOSVolumeSource Sysctl TCPSocketAction
        TopologySpreadConstraint TypedObjectReference Volume VolumeDevice VolumeHealthCondition
        VolumeHealthStatus VolumeMount VolumeProjection VolumeResourceRequirements
        VsphereVirtualDiskVolumeSource WeightedPodAffinityTerm WindowsSecurityContextOptions
    """,
    "kubeshard.kinds.generated.core_v1_pods": """
        ContainerExtendedResourceRequest ContainerState ContainerStateRunning ContainerStateTerminated
        ContainerStateWaiting ContainerStatus ContainerUser HostIP ImageVolumeStatus LinuxContainerUser
        NodeAllocatableMappedResources NodeAllocatableOverheadResources NodeAllocatableResourceClaimStatus
        Pod PodCondition PodExtendedResourceClaimStatus PodIP PodResourceClaimStatus PodStatus PodTemplate
        PodVolumeHealth ReplicationController ReplicationControllerCondition ReplicationControllerSpec
        ReplicationControllerStatus ResourceHealth ResourceStatus VolumeMountStatus VolumeStatus
    """,
    "kubeshard.kinds.generated.core_v1_references": """
        EventSource LocalObjectReference NodeSelector NodeSelectorRequirement NodeSelectorTerm
        ObjectReference Toleration TypedLocalObjectReference
    """,
    "kubeshard.kinds.generated.core_v1_volumes": """
        AzureFilePersistentVolumeSource CSIPersistentVolumeSource CephFSPersistentVolumeSource
        CinderPersistentVolumeSource FlexPersistentVolumeSource GlusterfsPersistentVolumeSource
        ISCSIPersistentVolumeSource LocalVolumeSource PersistentVolume PersistentVolumeSpec
        PersistentVolumeStatus RBDPersistentVolumeSource ScaleIOPersistentVolumeSource SecretReference
        StorageOSPersistentVolumeSource VolumeNodeAffinity
    """,
    "kubeshard.kinds.generated.discovery_v1": """
        Endpoint EndpointConditions EndpointHints EndpointPort EndpointSlice ForNode ForZone
    """,
    "kubeshard.kinds.generated.events_v1": """
        Event EventSeries
    """,
    "kubeshard.kinds.generated.flowcontrol_v1": """
        ExemptPriorityLevelConfiguration FlowDistinguisherMethod FlowSchema FlowSchemaCondition
        FlowSchemaSpec FlowSchemaStatus GroupSubject LimitResponse LimitedPriorityLevelConfiguration
        NonResourcePolicyRule PolicyRulesWithSubjects PriorityLevelConfiguration
        PriorityLevelConfigurationCondition PriorityLevelConfigurationReference
        PriorityLevelConfigurationSpec PriorityLevelConfigurationStatus QueuingConfiguration
        ResourcePolicyRule ServiceAccountSubject UserSubject
    """,
    "kubeshard.kinds.generated.networking_v1": """
        HTTPIngressPath HTTPIngressRuleValue IPAddress IPAddressSpec IPBlock Ingress IngressBackend
        IngressClass IngressClassParametersReference IngressClassSpec IngressLoadBalancerIngress
        IngressLoadBalancerStatus IngressPortStatus IngressRule IngressServiceBackend IngressSpec
        IngressStatus IngressTLS NetworkPolicy NetworkPolicyEgressRule NetworkPolicyIngressRule
        NetworkPolicyPeer NetworkPolicyPort NetworkPolicySpec ParentReference ServiceBackendPort ServiceCIDR
        ServiceCIDRSpec ServiceCIDRStatus
    """,
    "kubeshard.kinds.generated.node_v1": """
        Overhead RuntimeClass Scheduling
    """,
    "kubeshard.kinds.generated.policy_v1": """
        PodDisruptionBudget PodDisruptionBudgetSpec PodDisruptionBudgetStatus
    """,
    "kubeshard.kinds.generated.rbac_v1": """
        AggregationRule ClusterRole ClusterRoleBinding PolicyRule Role RoleBinding RoleRef Subject
    """,
    "kubeshard.kinds.generated.resource_v1": """
        AllocatedDeviceStatus AllocationResult CELDeviceSelector CapacityRequestPolicy
        CapacityRequestPolicyRange CapacityRequirements Counter CounterSet Device
        DeviceAllocationConfiguration DeviceAllocationResult DeviceAttribute DeviceCapacity DeviceClaim
        DeviceClaimConfiguration DeviceClass DeviceClassConfiguration DeviceClassSpec DeviceConstraint
        DeviceCounterConsumption DeviceDerivedAttribute DeviceRequest DeviceRequestAllocationResult
        DeviceSelector DeviceSubRequest DeviceTaint DeviceTaintRule DeviceTaintRuleSpec
        DeviceTaintRuleStatus DeviceTaintSelector DeviceToleration ExactDeviceRequest NetworkDeviceData
        NodeAllocatableMapping NodeAllocatableOverhead NodeAllocatableResource OpaqueDeviceConfiguration
        ResourceClaim ResourceClaimConsumerReference ResourceClaimSpec ResourceClaimStatus
        ResourceClaimTemplate ResourceClaimTemplateSpec ResourcePool ResourceSlice ResourceSliceSpec
    """,
    "kubeshard.kinds.generated.scheduling_v1": """
        PriorityClass
    """,
    "kubeshard.kinds.generated.scheduling_v1alpha3": """
        TopologyConstraint WorkloadPodGroupDisruptionMode WorkloadPodGroupGangSchedulingPolicy
        WorkloadPodGroupResourceClaim WorkloadPodGroupSchedulingConstraints WorkloadPodGroupSchedulingPolicy
    """,
    "kubeshard.kinds.generated.storage_v1": """
        CSIDriver CSIDriverSpec CSINode CSINodeDriver CSINodeSpec CSINodeStatus CSIStorageCapacity
        StorageClass StorageHealth StorageHealthCondition TokenRequest VolumeAttachment
        VolumeAttachmentSource VolumeAttachmentSpec VolumeAttachmentStatus VolumeAttributesClass VolumeError
        VolumeNodeResources
    """,
    "kubeshard.kinds.generated.storagemigration_v1": """
        GroupResource StorageVersionMigration StorageVersionMigrationSpec StorageVersionMigrationStatus
    """,
}
HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
"""The module of each name."""
