"""Classes of authentication.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those
of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.objects import KubeObject, Struct, field


class UserInfo(Struct):
    """UserInfo holds the information about the user needed to implement the user.Info interface."""

    extra: Mapping[str, tuple[str, ...]] | None = None
    """extra is any additional information provided by the authenticator."""
    groups: tuple[str, ...] | None = None
    """groups is the names of groups this user is a part of."""
    uid: str | None = None
    """uid is a unique value that identifies this user across time."""
    username: str | None = None
    """username is the name that uniquely identifies this user among all active users."""


class SelfSubjectReviewStatus(Struct):
    """SelfSubjectReviewStatus is filled by the kube-apiserver and sent back to a user."""

    user_info: UserInfo | None = None
    """userInfo is a set of attributes belonging to the user making this request."""


class SelfSubjectReview(KubeObject, group="authentication.k8s.io", version="v1", namespaced=False):
    """SelfSubjectReview contains the user information that the kube-apiserver has about the user making this
    request.
    """

    status: SelfSubjectReviewStatus = field(default_factory=SelfSubjectReviewStatus)
    """status is filled in by the server with the user attributes."""


class TokenReviewSpec(Struct):
    """TokenReviewSpec is a description of the token authentication request."""

    token: str
    """token is the opaque bearer token."""
    audiences: tuple[str, ...] | None = None
    """audiences is a list of the identifiers that the resource server presented with the token identifies
    as.
    """


class TokenReviewStatus(Struct):
    """TokenReviewStatus is the result of the token authentication request."""

    audiences: tuple[str, ...] | None = None
    """audiences are audience identifiers chosen by the authenticator that are compatible with both the
    TokenReview and token.
    """
    authenticated: bool | None = None
    """authenticated indicates that the token was associated with a known user."""
    error: str | None = None
    """error indicates that the token couldn't be checked"""
    user: UserInfo | None = None
    """user is the UserInfo associated with the provided token."""


class TokenReview(KubeObject, group="authentication.k8s.io", version="v1", namespaced=False):
    """TokenReview attempts to authenticate a token to a known user."""

    spec: TokenReviewSpec
    """spec holds information about the request being evaluated"""
    status: TokenReviewStatus = field(default_factory=TokenReviewStatus)
    """status is filled in by the server and indicates whether the request can be authenticated."""
