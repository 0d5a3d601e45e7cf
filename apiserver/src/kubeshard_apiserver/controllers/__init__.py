"""The parts of kube-controller-manager, kube-scheduler and the kubelet that tests of operators depend on."""

from kubeshard_apiserver.controllers.controllers import Controllers

__all__ = ["Controllers"]
