"""What kube-controller-manager, kube-scheduler and kubelets do, as far as tests of operators notice it."""

from kubeshard_apiserver.controllers.controllers import Controllers

__all__ = ["Controllers"]
