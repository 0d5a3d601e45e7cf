"""Charts as files beside a page: CSV, SVG and PNG of each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install
from kubeshard_lab.experiment.report.charts import Chart


def save(charts: Iterable[Chart], folder: Path) -> dict[str, str]:
    """Returns the drawings by the names of their charts. Raises ConfigurationError if nothing can draw."""
    try:
        from kubeshard_lab.experiment.report.drawing import png, svg
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"reports need the package {error.name}: {how_to_install('lab')}") from None

    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for chart in charts:
        drawn[chart.name] = svg(chart)
        (folder / f"{chart.name}.csv").write_text(chart.csv(), encoding="utf-8")
        (folder / f"{chart.name}.svg").write_text(drawn[chart.name], encoding="utf-8")
        (folder / f"{chart.name}.png").write_bytes(png(chart))
    return drawn
