"""``huc-monitor sample``: which rows of a window to label, for a budget."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from huc_monitor.cli import options
from huc_monitor.cli.logs import start_logging
from huc_monitor.cli.showing import print_json, say
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from huc_monitor.config import Config
    from huc_monitor.monitor._state import MonitorState
    from huc_monitor.planning import LabelPlan
    from huc_monitor.sources import PredictionData, TableSource
    from huc_monitor.tree import LabelTree

# Labelled rows with a proxy's opinion that say how good it is.
_LEAST_BOTH = 50


def run(
    *,
    budget: Annotated[int, typer.Option(min=1, help="Labels to buy.")],
    config: options.ConfigFile = Path("huc.yaml"),
    window: Annotated[
        str | None,
        typer.Option(help="A time in the window: 2024-03-31. The newest whole one if left out."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write ids and probabilities.")] = Path(
        "plan.csv"
    ),
    proxy: Annotated[
        str | None,
        typer.Option(help="Column of the log with a second, cheaper opinion on the label."),
    ] = None,
    uniform_share: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of the budget that is spread evenly.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Choose rows to label so that the widest bound relative to its tolerance shrinks most.

    Writes a CSV file with an empty column for labels. Point `source.plan` at it, so that checks
    weigh every label by the probability of its choice.

    Example: huc-monitor sample --budget 500 --window 2024-03-31 --out plans/2024-03-31.csv
    """
    from huc_monitor.config import load_config
    from huc_monitor.config.opening import open_tracker
    from huc_monitor.monitor import open_state
    from huc_monitor.planning import plan_labels
    from huc_monitor.subgroups import Subgroups
    from huc_monitor.tree.labels import LeafCodes

    start_logging(None)
    settings = load_config(config)
    if settings.settings.columns.id is None:
        msg = "`columns.id` must name the column by which labels are joined; the file has none."
        raise InvalidInputError(msg)
    features = [*settings.feature_columns, *([proxy] if proxy else [])]
    source = settings.open_source(features=features)
    if proxy is not None and proxy not in source.log.columns():
        known = did_you_mean(proxy, source.log.columns())
        msg = f"`--proxy` must name a column of {source.log.name}; got {proxy!r}. {known}"
        raise UnknownNameError(msg)
    with closing(open_tracker(settings)) as tracker:
        given = settings.identity, settings.tree, settings.utilities, settings.document.name
        state = open_state(tracker, *given)
    start, end = _find_window(settings, source, window)
    data = source.predictions(start, end)
    groups = Subgroups.whole()
    if state.subgroups is not None:
        groups = Subgroups.from_dict(state.subgroups)
    elif settings.feature_columns:
        groups = settings.make_subgroups(data.features)
    tolerance = settings.settings.tolerance.values(settings.tree, settings.utilities, groups)
    opinion, odds = _opinion(settings.tree, source, state, data, proxy)
    plan = plan_labels(
        data.probabilities,
        tree=settings.tree,
        utilities=list(settings.utilities),
        subgroups=groups,
        features=data.features,
        budget=min(budget, data.n),
        tolerance=np.maximum(tolerance, 1e-3).tolist(),
        uniform_share=uniform_share,
        proxy=None if opinion is None else LeafCodes(opinion),
        proxy_odds=1.0 if odds is None else odds,
        rng=seed,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    chosen = plan.to_frame(data.ids).assign(label="")
    # Of a window that is too large to be held, rows were drawn before these were chosen.
    usable = data.n_predictions - data.n_quarantined - data.n_duplicate_ids
    chosen["label_probability"] *= data.n / max(usable, data.n)
    chosen.to_csv(out, index=False)
    _tell(plan, out, (start, end), proxy, odds, settings.windows.time_zone, as_json=as_json)
    if not as_json:
        say(_next_step(out, settings.settings.engine))


def _find_window(
    settings: Config, source: TableSource, wanted: str | None
) -> tuple[datetime, datetime]:
    from huc_monitor._common.times import say_span, to_utc

    ranges = list(settings.windows.ranges(source, None))
    extent = source.time_range()
    if wanted is not None:
        moment = to_utc(wanted, argument="window", zone=settings.windows.zone)
        found = [span for span in ranges if span[0] <= moment < span[1]]
    else:
        found = [span for span in ranges if extent is not None and span[1] <= extent.last]
        found = found or ranges
    if not found:
        reach = "it is empty"
        if extent is not None:
            zone = settings.windows.time_zone
            reach = f"from {say_span(extent.first, extent.last, zone, exact=True)}"
        msg = f"`--window` must lie in the log ({reach}); got {wanted!r}."
        raise InvalidInputError(msg)
    return found[-1]


def _opinion(
    tree: LabelTree,
    source: TableSource,
    state: MonitorState,
    data: PredictionData,
    proxy: str | None,
) -> tuple[Any, float | None]:
    """Return the proxy's leaf codes and its odds, measured on the newest audited windows.

    Rows without an opinion that is a leaf take the likeliest one: nothing new about them.
    """
    from huc_monitor.audit.inputs import Predictions
    from huc_monitor.planning import fit_proxy_odds
    from huc_monitor.tree.labels import LeafCodes

    if proxy is None:
        return None, None
    encoder, n_leaves, odds, n = tree.label_encoder(), tree.n_leaves, [], []
    for kept in state.compared[-4:]:
        past = source.labelled(kept.start, kept.end)
        codes = encoder.find(past.features[proxy].astype(object))
        both = np.flatnonzero((codes >= 0) & (codes < n_leaves) & (past.labels < n_leaves))
        if both.size:
            pair = LeafCodes(past.labels[both]), LeafCodes(codes[both])
            odds.append(fit_proxy_odds(past.probabilities[both], *pair, tree=tree))
            n.append(both.size)
    if sum(n) < _LEAST_BOTH:
        return None, None
    codes = encoder.find(data.features[proxy].astype(object))
    likeliest = Predictions.of(data.probabilities).likeliest()
    codes = np.where((codes >= 0) & (codes < n_leaves), codes, likeliest)
    return codes, float(np.exp(np.average(np.log(odds), weights=n)))


def _tell(
    plan: LabelPlan,
    out: Path,
    span: tuple[datetime, datetime],
    proxy: str | None,
    odds: float | None,
    zone: str,
    *,
    as_json: bool,
) -> None:
    from huc_monitor._common.times import say_time

    n_chosen = int(plan.chosen.size)
    if as_json:
        document = {
            "path": str(out),
            "start": span[0].isoformat(),
            "end": span[1].isoformat(),
            "n_rows": plan.n,
            "n_chosen": n_chosen,
            "saving": plan.saving,
            "worst": list(plan.worst),
            "proxy_odds": odds,
        }
        print_json(document)
        return
    say(f"Wrote {out}: {n_chosen:,} of {plan.n:,} rows from {say_time(span[0], zone)} on.")
    even = n_chosen / max(1e-9, plan.design_effect)
    say(f"Chosen evenly, the same largest radius would take {even:,.0f} labels, by calculation.")
    if proxy is not None:
        used = "not used, too few labelled rows have it"
        if odds is not None:
            used = f"makes the leaf it names {odds:.3g} times likelier (on audited windows)"
        say(f"Second opinion {proxy}: {used}.")


def _next_step(out: Path, engine: str) -> str:
    if engine == "local":
        return f"Fill in the labels, and set source.plan.path: {out}"
    return (
        f"Fill in the labels. engine: {engine} reads no plans: give the log a column "
        "label_probability, joined from the plan by id, keep labels of planned rows only, and set "
        "columns.label_probability: label_probability"
    )
