"""The commands `kubeshard monitoring`: Prometheus rules, Grafana dashboards, and the table of metrics."""

from __future__ import annotations

import click

from kubeshard.cli.names import label
from kubeshard.commands.options import Command
from kubeshard.core.errors import ConfigurationError


@click.group(short_help="Print alerts, dashboards, and the list of metrics.")
def monitoring() -> None:
    """Alerts for Prometheus, dashboards for Grafana, and the metrics that sharder and shards expose."""


@monitoring.command(
    cls=Command,
    short_help="Print the alerts as Prometheus rules.",
    examples=(
        "kubeshard monitoring rules > /etc/prometheus/rules/kubeshard.yaml",
        "kubeshard monitoring rules --resource my-system | kubectl apply -f -",
        "kubeshard monitoring rules --docs-url https://docs.example.com/kubeshard",
    ),
)
@click.option(
    "--resource",
    "namespace",
    metavar="NAMESPACE",
    help="Print a PrometheusRule in this namespace, for the Prometheus operator (default: a Prometheus rule file).",
)
@click.option(
    "--docs-url",
    metavar="URL",
    help="Where you publish kubeshard's documentation, as `make docs` builds it: each alert then has a runbook_url"
    " (default: a hint without a link).",
)
def rules(namespace: str | None, docs_url: str | None) -> None:
    """Print the alerts as YAML, each with a summary and where to read more."""
    from kubeshard.core.yaml_output import as_yaml
    from kubeshard.monitoring.alerting import prometheus_rule
    from kubeshard.monitoring.alerting import rules as rendered

    if docs_url is not None and not docs_url.startswith(("http://", "https://")):
        raise click.BadParameter(
            "expected a URL that begins with http:// or https://", param_hint="--docs-url"
        )
    found = (
        rendered(docs_url) if namespace is None else prometheus_rule(label(namespace, "--resource"), docs_url)
    )
    click.echo(as_yaml(found), nl=False)


@monitoring.command(
    cls=Command,
    short_help="Print a dashboard for Grafana.",
    examples=("kubeshard monitoring dashboard operators > operators.json",),
)
@click.argument("name", metavar="sharder|operators")
def dashboard(name: str) -> None:
    """Print the dashboard of the sharder or of operators, as JSON for import into Grafana. With kubeshard-lab there is
    that of its example, webhosting, too.
    """
    import json
    from importlib.metadata import entry_points

    from kubeshard.monitoring.grafana import dashboards

    known = dashboards()
    others = {each.name: each for each in entry_points(group="kubeshard.dashboards")}
    if name not in known and name not in others:
        raise ConfigurationError(
            f"there is no dashboard {name}: choose one of {', '.join([*known, *sorted(others)])}"
        )
    click.echo(json.dumps(known[name] if name in known else others[name].load()(), indent=1))


@monitoring.command(cls=Command, short_help="List the metrics.")
def metrics() -> None:
    """List the metrics of the sharder and the shards, with labels and meaning, as Markdown."""
    from kubeshard.metrics.declared import tables

    click.echo(tables(), nl=False)
