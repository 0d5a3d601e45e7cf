"""The webhosting operator: Websites and Themes, the reference's evaluation workload.

A tour: `api` (the kinds), `children` (what a Website owns), `reconciler` (how it is made so), `controller` (when),
`operator` (the process).
"""

from kubeshard.examples.webhosting.controller import website_controller
from kubeshard.examples.webhosting.operator import build_operator, connected_operator

__all__ = ["build_operator", "connected_operator", "website_controller"]
