"""A control plane to try things out on, until Ctrl-C: `make cluster`, or
`python -m kubeshard_apiserver.testing [--pods]`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time

from kubeshard.core.errors import ConfigurationError, KubeshardError
from kubeshard_apiserver.testing.control_plane import ControlPlane


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m kubeshard_apiserver.testing", description="Runs a Kubernetes control plane."
    )
    parser.add_argument("--pods", action="store_true", help="with one simulated node that runs pods")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # With controllers in any case: without one for namespaces, `kubectl delete` of one never ends.
        with ControlPlane(controller_manager=True, pods=options.pods) as kube:
            print(f"export KUBECONFIG={kube.kubeconfig}")
            print(f"alias kubectl={kube.kubectl_path}", flush=True)
            print(
                "the cluster runs until Ctrl-C; paste these lines into another shell",
                file=sys.stderr,
                flush=True,
            )
            while (
                True
            ):  # a signal that arrives just before a wait without a limit would be noticed by the next one
                time.sleep(1)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    except KubeshardError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)


if __name__ == "__main__":
    main()
