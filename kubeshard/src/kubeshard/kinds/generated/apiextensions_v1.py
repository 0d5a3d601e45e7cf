"""Classes of apiextensions.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those
of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.objects import KubeObject, Struct, field


class ServiceReference(Struct):
    """ServiceReference holds a reference to Service.legacy.k8s.io"""

    name: str
    """name is the name of the service."""
    namespace: str
    """namespace is the namespace of the service."""
    path: str | None = None
    """path is an optional URL path at which the webhook will be contacted."""
    port: int | None = None
    """port is an optional service port at which the webhook will be contacted. `port` should be a valid port
    number (1-65535, inclusive).
    """


class WebhookClientConfig(Struct):
    """WebhookClientConfig contains the information to make a TLS connection with the webhook."""

    ca_bundle: str | None = None
    """caBundle is a PEM encoded CA bundle which will be used to validate the webhook's server certificate."""
    service: ServiceReference | None = None
    """service is a reference to the service for this webhook."""
    url: str | None = None
    """url gives the location of the webhook, in standard URL form (`scheme://host:port/path`)."""


class WebhookConversion(Struct):
    """WebhookConversion describes how to call a conversion webhook"""

    conversion_review_versions: tuple[str, ...]
    """conversionReviewVersions is an ordered list of preferred `ConversionReview` versions the Webhook
    expects.
    """
    client_config: WebhookClientConfig | None = None
    """clientConfig is the instructions for how to call the webhook if strategy is `Webhook`."""


class CustomResourceConversion(Struct):
    """CustomResourceConversion describes how to convert different versions of a CR."""

    strategy: str
    """strategy specifies how custom resources are converted between versions."""
    webhook: WebhookConversion | None = None
    """webhook describes how to call the conversion webhook."""


class CustomResourceDefinitionNames(Struct):
    """CustomResourceDefinitionNames indicates the names to serve this CustomResourceDefinition"""

    kind: str
    """kind is the serialized kind of the resource."""
    plural: str
    """plural is the plural name of the resource to serve."""
    categories: tuple[str, ...] | None = None
    """categories is a list of grouped resources this custom resource belongs to (e.g. 'all')."""
    list_kind: str | None = None
    """listKind is the serialized kind of the list for this resource."""
    short_names: tuple[str, ...] | None = None
    """shortNames are short names for the resource, exposed in API discovery documents, and used by clients to
    support invocations like `kubectl get <shortname>`.
    """
    singular: str | None = None
    """singular is the singular name of the resource."""


class CustomResourceColumnDefinition(Struct):
    """CustomResourceColumnDefinition specifies a column for server side printing."""

    json_path: str
    """jsonPath is a simple JSON path (i.e. with array notation) which is evaluated against each custom
    resource to produce the value for this column.
    """
    name: str
    """name is a human readable name for the column."""
    type: str
    """type is an OpenAPI type definition for this column."""
    description: str | None = None
    """description is a human readable description of this column."""
    format: str | None = None
    """format is an optional OpenAPI type definition for this column."""
    priority: int | None = None
    """priority is an integer defining the relative importance of this column compared to others."""


class ExternalDocumentation(Struct):
    """ExternalDocumentation allows referencing an external resource for extended documentation."""

    description: str | None = None
    url: str | None = None


class ValidationRule(Struct):
    """ValidationRule describes a validation rule written in the CEL expression language."""

    rule: str
    """Rule represents the expression which will be evaluated by CEL. ref: https://github.com/google/cel-spec
    The Rule is scoped to the location of the x-kubernetes-validations extension in the schema.
    """
    field_path: str | None = None
    """fieldPath represents the field path returned when the validation fails."""
    message: str | None = None
    """Message represents the message displayed when validation fails."""
    message_expression: str | None = None
    """MessageExpression declares a CEL expression that evaluates to the validation failure message that is
    returned when this rule fails.
    """
    optional_old_self: bool | None = None
    """optionalOldSelf is used to opt a transition rule into evaluation even when the object is first created,
    or if the old object is missing the value.
    """
    reason: str | None = None
    """reason provides a machine-readable validation failure reason that is returned to the caller when a
    request fails this validation rule. One of FieldValueDuplicate, FieldValueForbidden, FieldValueInvalid,
    FieldValueRequired.
    """


class JSONSchemaProps(Struct):
    """JSONSchemaProps is a JSON-Schema following Specification Draft 4 (http://json-schema.org/)."""

    ref: str | None = field(default=None, name="$ref")
    schema: str | None = field(default=None, name="$schema")
    additional_items: Any = None
    additional_properties: Any = None
    all_of: tuple[Any, ...] | None = None
    any_of: tuple[Any, ...] | None = None
    default: Any = None
    """default is a default value for undefined object fields."""
    definitions: Mapping[str, Any] | None = None
    dependencies: Mapping[str, Any] | None = None
    description: str | None = None
    enum: tuple[Any, ...] | None = None
    example: Any = None
    exclusive_maximum: bool | None = None
    exclusive_minimum: bool | None = None
    external_docs: ExternalDocumentation | None = None
    format: str | None = None
    """format is an OpenAPI v3 format string."""
    id: str | None = None
    items: Any = None
    max_items: int | None = None
    max_length: int | None = None
    max_properties: int | None = None
    maximum: float | None = None
    min_items: int | None = None
    min_length: int | None = None
    min_properties: int | None = None
    minimum: float | None = None
    multiple_of: float | None = None
    not_: Any = None
    nullable: bool | None = None
    one_of: tuple[Any, ...] | None = None
    pattern: str | None = None
    pattern_properties: Mapping[str, Any] | None = None
    properties: Mapping[str, Any] | None = None
    required: tuple[str, ...] | None = None
    title: str | None = None
    type: str | None = None
    unique_items: bool | None = None
    x_kubernetes_embedded_resource: bool | None = field(default=None, name="x-kubernetes-embedded-resource")
    """x-kubernetes-embedded-resource defines that the value is an embedded Kubernetes runtime.Object, with
    TypeMeta and ObjectMeta.
    """
    x_kubernetes_int_or_string: bool | None = field(default=None, name="x-kubernetes-int-or-string")
    """x-kubernetes-int-or-string specifies that this value is either an integer or a string."""
    x_kubernetes_list_map_keys: tuple[str, ...] | None = field(
        default=None, name="x-kubernetes-list-map-keys"
    )
    """x-kubernetes-list-map-keys annotates an array with the x-kubernetes-list-type `map` by specifying the
    keys used as the index of the map.
    """
    x_kubernetes_list_type: str | None = field(default=None, name="x-kubernetes-list-type")
    """x-kubernetes-list-type annotates an array to further describe its topology."""
    x_kubernetes_map_type: str | None = field(default=None, name="x-kubernetes-map-type")
    """x-kubernetes-map-type annotates an object to further describe its topology."""
    x_kubernetes_preserve_unknown_fields: bool | None = field(
        default=None, name="x-kubernetes-preserve-unknown-fields"
    )
    """x-kubernetes-preserve-unknown-fields stops the API server decoding step from pruning fields which are
    not specified in the validation schema.
    """
    x_kubernetes_validations: tuple[ValidationRule, ...] | None = field(
        default=None, name="x-kubernetes-validations"
    )
    """x-kubernetes-validations describes a list of validation rules written in the CEL expression
    language.
    """


class CustomResourceValidation(Struct):
    """CustomResourceValidation is a list of validation methods for CustomResources."""

    open_apiv_3_schema: JSONSchemaProps | None = field(default=None, name="openAPIV3Schema")
    """openAPIV3Schema is the OpenAPI v3 schema to use for validation and pruning."""


class SelectableField(Struct):
    """SelectableField specifies the JSON path of a field that may be used with field selectors."""

    json_path: str
    """jsonPath is a simple JSON path which is evaluated against each custom resource to produce a field
    selector value.
    """


class CustomResourceSubresourceScale(Struct):
    """CustomResourceSubresourceScale defines how to serve the scale subresource for CustomResources."""

    spec_replicas_path: str
    """specReplicasPath defines the JSON path inside of a custom resource that corresponds to Scale
    `spec.replicas`.
    """
    status_replicas_path: str
    """statusReplicasPath defines the JSON path inside of a custom resource that corresponds to Scale
    `status.replicas`.
    """
    label_selector_path: str | None = None
    """labelSelectorPath defines the JSON path inside of a custom resource that corresponds to Scale
    `status.selector`.
    """


class CustomResourceSubresources(Struct):
    """CustomResourceSubresources defines the status and scale subresources for CustomResources."""

    scale: CustomResourceSubresourceScale | None = None
    """scale indicates the custom resource should serve a `/scale` subresource that returns an
    `autoscaling/v1` Scale object.
    """
    status: Mapping[str, Any] | None = None
    """status indicates the custom resource should serve a `/status` subresource."""


class CustomResourceDefinitionVersion(Struct):
    """CustomResourceDefinitionVersion describes a version for CRD."""

    name: str
    """name is the version name, e.g. “v1”, “v2beta1”, etc."""
    served: bool
    """served is a flag enabling/disabling this version from being served via REST APIs"""
    storage: bool
    """storage indicates this version should be used when persisting custom resources to storage."""
    additional_printer_columns: tuple[CustomResourceColumnDefinition, ...] | None = None
    """additionalPrinterColumns specifies additional columns returned in Table output."""
    deprecated: bool | None = None
    """deprecated indicates this version of the custom resource API is deprecated."""
    deprecation_warning: str | None = None
    """deprecationWarning overrides the default warning returned to API clients."""
    schema: CustomResourceValidation | None = None
    """schema describes the schema used for validation, pruning, and defaulting of this version of the custom
    resource.
    """
    selectable_fields: tuple[SelectableField, ...] | None = None
    """selectableFields specifies paths to fields that may be used as field selectors."""
    subresources: CustomResourceSubresources | None = None
    """subresources specify what subresources this version of the defined custom resource have."""


class CustomResourceDefinitionSpec(Struct):
    """CustomResourceDefinitionSpec describes how a user wants their resource to appear"""

    group: str
    """group is the API group of the defined custom resource."""
    names: CustomResourceDefinitionNames
    """names specify the resource and kind names for the custom resource."""
    scope: str
    """scope indicates whether the defined custom resource is cluster- or namespace-scoped."""
    versions: tuple[CustomResourceDefinitionVersion, ...]
    """versions is the list of all API versions of the defined custom resource."""
    conversion: CustomResourceConversion | None = None
    """conversion defines conversion settings for the CRD."""
    preserve_unknown_fields: bool | None = None
    """preserveUnknownFields indicates that object fields which are not specified in the OpenAPI schema should
    be preserved when persisting to storage. apiVersion, kind, metadata and known fields inside metadata are
    always preserved.
    """


class CustomResourceDefinitionCondition(Struct):
    """CustomResourceDefinitionCondition contains details for the current condition of this pod."""

    status: str
    """status is the status of the condition."""
    type: str
    """type is the type of the condition."""
    last_transition_time: str | None = None
    """lastTransitionTime last time the condition transitioned from one status to another."""
    message: str | None = None
    """message is a human-readable message indicating details about last transition."""
    observed_generation: int | None = None
    """observedGeneration represents the .metadata.generation that the condition was set based upon."""
    reason: str | None = None
    """reason is a unique, one-word, CamelCase reason for the condition's last transition."""


class CustomResourceDefinitionStatus(Struct):
    """CustomResourceDefinitionStatus indicates the state of the CustomResourceDefinition"""

    accepted_names: CustomResourceDefinitionNames | None = None
    """acceptedNames are the names that are actually being used to serve discovery."""
    conditions: tuple[CustomResourceDefinitionCondition, ...] | None = None
    """conditions indicate state for particular aspects of a CustomResourceDefinition"""
    observed_generation: int | None = None
    """The generation observed by the CRD controller."""
    stored_versions: tuple[str, ...] | None = None
    """storedVersions lists all versions of CustomResources that were ever persisted."""


class CustomResourceDefinition(KubeObject, group="apiextensions.k8s.io", version="v1", namespaced=False):
    """CustomResourceDefinition represents a resource that should be exposed on the API server."""

    spec: CustomResourceDefinitionSpec
    """spec describes how the user wants the resources to appear"""
    status: CustomResourceDefinitionStatus = field(default_factory=CustomResourceDefinitionStatus)
    """status indicates the actual state of the CustomResourceDefinition"""
