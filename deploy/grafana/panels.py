"""The pieces of dashboards: a number, lines over time, and a board with its variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
Unit = Literal["s", "bytes", "percentunit", "short", "reqps", "dateTimeFromNow", "cores"]
HERE: Final = 'cluster="$cluster"'
JUDGED: Final = 'severity=~"critical|warning"'
Panel = stat.Panel | timeseries.Panel
_UNITS: Final = {"cores": "none"}


class Query(NamedTuple):
    """An expression, and what a line of it is called."""

    expr: str
    legend: str


def quantiles(metric: str, selector: str, by: str = "") -> list[Query]:
    """The median and the 99th percentile of a classic histogram; `by` one more label, the 99th percentile alone."""
    labels = f"le, {by}" if by else "le"
    rate = f"sum by ({labels}) (rate({metric}_bucket{{{selector}}}[$__rate_interval]))"
    if by:
        return [Query(f"histogram_quantile(0.99, {rate})", f"99 %, {{{{{by}}}}}")]
    return [Query(f"histogram_quantile({q}, {rate})", f"{name} %") for q, name in ((0.5, "50"), (0.99, "99"))]


def quantiles_so_far(metric: str, selector: str) -> list[Query]:
    """The same of all since the processes began: for what happens now and then."""
    counts = f"sum by (le) ({metric}_bucket{{{selector}}})"
    return [Query(f"histogram_quantile({q}, {counts})", f"{name} %") for q, name in ((0.5, "50"), (0.99, "99"))]


def availability(what: str, failures: str, selector: str, window: str = "$__range") -> str:
    """The share of tries that did not fail; `what` and `failures` are counters, without `_total`."""
    failed, tried = (f"sum(rate({name}_total{{{selector}}}[{window}]))" for name in (failures, what))
    return f"1 - {failed} / ({tried} > 0)"


def number(
    title: str, description: str, unit: Unit, query: str, limits: tuple[float, float] | None = None
) -> stat.Panel:
    """One number; green below the first of the `limits` and red from the other on, or the other way round where that is
    less."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(_UNITS.get(unit, unit))
        .span(4)
        .height(4)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(prometheus.Dataquery().expr(query).instant().ref_id("A"))
    )
    if unit == "percentunit":
        panel = panel.decimals(3)
    if limits is not None:
        panel = panel.thresholds(_thresholds(*limits))
    return panel


def _thresholds(good: float, bad: float) -> dashboard.ThresholdsConfig:
    low, high = ("green", "red") if good <= bad else ("red", "green")
    steps = [models.Threshold(value=None, color=low), models.Threshold(value=min(good, bad), color="yellow")]
    if good == bad:
        steps.pop()
    steps.append(models.Threshold(value=max(good, bad), color=high))
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def lines(title: str, description: str, unit: Unit, *queries: Query) -> timeseries.Panel:
    """Lines over time, half a screen wide."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(_UNITS.get(unit, unit))
        .min(0)
        .span(12)
        .height(8)
        .fill_opacity(8)
        .line_width(1)
        .show_points(common_models.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
    )
    for ref, query in zip("ABCDEFGH", queries, strict=False):
        panel = panel.with_target(
            prometheus.Dataquery().expr(query.expr).legend_format(query.legend).range().ref_id(ref)
        )
    return panel


def available(title: str, what: str, failures: str) -> Panel:
    """The share of tries that did not fail; the counters without `offsetwatch_` and `_total`."""
    query = availability(f"offsetwatch_{what}", f"offsetwatch_{failures}", HERE)
    words = "One less the share that failed, in the time shown."
    return number(title, words, "percentunit", query, (0.9995, 0.999))


def board(uid: str, title: str, description: str, *, topic: bool = False) -> dashboard.Dashboard:
    """An empty dashboard with the variables `datasource` and `cluster`; `topic`: and one for the topic."""
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["offsetwatch"])
        .readonly()
        .time("now-3h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Offsetwatch")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["offsetwatch"])
            .as_dropdown(True)
            .keep_time(True)
            .include_vars(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("cluster", "Cluster", "label_values(offsetwatch_probe_lives_total, cluster)"))
    )
    if topic:
        query = 'label_values(offsetwatch_topic_unseen_records{cluster="$cluster"}, topic)'
        made = made.with_variable(_variable("topic", "Topic", query))
    return made


def filled(made: dashboard.Dashboard, rows: Mapping[str, Sequence[Panel]]) -> dashboard.Dashboard:
    """The dashboard with these rows of panels, by their titles."""
    for title, panels in rows.items():
        made = made.with_row(dashboard.Row(title))
        for panel in panels:
            made = made.with_panel(panel)
    return made


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
