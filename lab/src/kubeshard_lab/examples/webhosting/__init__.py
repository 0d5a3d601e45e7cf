"""The webhosting operator: Websites and Themes, the workload with which the Go project is evaluated.

A tour: `api` (the kinds), `children` (what a Website owns), `controller` (when and how that is applied),
`operator` (the process).
"""

from kubeshard_lab.examples.webhosting.controller import website_controller
from kubeshard_lab.examples.webhosting.operator import build_operator, connected_operator

__all__ = ["build_operator", "connected_operator", "website_controller"]
