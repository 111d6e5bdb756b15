"""A dashboard over windows: panels for what the preset measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evidently.sdk.models import PanelMetric
from evidently.sdk.panels import counter_panel, line_plot_panel

from huc_evidently._metrics import SUMMARIES
from huc_evidently._preset import HUCPreset


def add_panels(
    project: Any,
    preset: HUCPreset,
    *,
    tab: str = "Utility calibration",
    subgroups: Sequence[str] | None = None,
) -> None:
    """Add panels to a project's dashboard: HUC over windows, and lower bounds of every node.

    Panels that are there already, by their titles, are left as they are: call it as often as you
    like.

    Parameters
    ----------
    project : evidently.ui.workspace.Project
        Of a local or a remote workspace.
    preset : HUCPreset
        The one in the reports that are added to the project.
    tab : str
        Name of the dashboard's tab.
    subgroups : list of str, optional
        Those to draw; the whole population alone when left out.
    """
    question = preset._question  # noqa: SLF001 - a part of this package
    mine = {} if preset.name is None else {"preset": preset.name}
    prefix = "" if preset.name is None else f"{preset.name}: "
    huc = [
        PanelMetric(
            metric="HUCSummary", legend=quantity, metric_labels={"quantity": quantity} | mine
        )
        for quantity in SUMMARIES
    ]
    panels = [
        counter_panel(f"{prefix}HUC of the last window", values=huc[:1], size="half"),
        counter_panel(f"{prefix}HUC, lower bound", values=huc[1:2], size="half"),
        line_plot_panel(
            f"{prefix}HUC with bounds, and UC",
            values=huc,
            description="A flat UC beside a rising HUC: errors in branches that cancel.",
        ),
    ]
    names = list(question.subgroups.names[:1]) if subgroups is None else list(subgroups)
    for utility in question.utilities:
        for subgroup in names:
            labels = {"utility": utility.name, "subgroup": subgroup, "bound": "lower"} | mine
            panels.append(
                line_plot_panel(
                    f"{prefix}{utility.name}, {subgroup}: lower bounds by branch",
                    values=[
                        PanelMetric(metric="HUCMoment", legend="{{label}}", metric_labels=labels)
                    ],
                    description="Lower bounds of absolute moments; compare with the tolerance.",
                )
            )
    there = {panel.title for panel in project.dashboard.model().panels}
    for panel in panels:
        if panel.title not in there:
            project.dashboard.add_panel(panel, tab=tab)
