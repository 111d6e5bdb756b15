"""Writes docs/peers.md from the stored figures: no number on that page is typed by hand."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from itertools import chain
from pathlib import Path
from statistics import fmean, median, stdev

from page_detection import (
    NAMES,
    detection,
    detection_table,
    picture,
    reasons,
    sooner,
)

FIGURES = {
    "huc": "HUC",
    "log_loss": "Log loss",
    "ece": "Calibration error of the likeliest class",
    "accuracy": "Accuracy",
}
HIGHER = {"accuracy"}  # is better
EACH = "_per_candidate"
COMPARED = {  # our figure, and the other's
    "twenty windows, with bounds": ("twenty_windows", "twenty_windows"),
    "updates as rows come": ("sequential", "sequential"),
    **{
        f"per candidate, {leaves} leaves, huc-monitor {bounds}": (what + EACH, "calibration" + EACH)
        for leaves, ending in ((5, ""), (60, "_large"))
        for what, bounds in (
            (f"calibration{ending}", "with bootstrap bounds"),
            (f"sharp{ending}", "with closed bounds"),
            (f"plain{ending}", "without bounds"),
        )
    },
}
PARTS = {
    "detect": "detection",
    "recalibrate": "recalibration",
    "discover": "segments",
    "speed": "speed",
}
EMPTY = {"losses": "- Nowhere.", "left": "- Everything was run."}
BOOST, NOTHING = "huc: HUC-Boost", "sklearn: nothing"


def load(results: Path) -> dict[str, dict]:
    """Every peer's figures by its name."""
    return {
        path.stem.removesuffix("_peer"): json.loads(path.read_text("utf-8"))
        for path in sorted(results.glob("*_peer.json"))
    }


def recalibration(results):
    """Figures by pair, method and split; those of labels drawn as predicted apart."""
    path = results / "recalibration.json"
    found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    found = {pair: methods for pair, methods in found.items() if {BOOST, NOTHING} <= methods.keys()}
    calibrated = {pair for pair in found if pair.endswith("-calibrated")}
    return {pair: found[pair] for pair in found if pair not in calibrated}, {
        pair: found[pair] for pair in found if pair in calibrated
    }


def compare_pair(methods, what):
    """Ours less another, mean and standard error over the splits, by method."""
    ours = [one[what] for one in methods[BOOST]]
    return {
        name: (fmean(gaps), stdev(gaps) / math.sqrt(len(gaps)))
        for name, others in methods.items()
        if name != BOOST
        for gaps in [[a - b[what] for a, b in zip(ours, others, strict=True)]]
    }


def recalibration_table(found):
    """HUC and log loss of every pair."""
    methods = sorted({name for pair in found.values() for name in pair})
    for what, title in FIGURES.items():
        yield f"\n### {title}\n"
        yield "| model and data | " + " | ".join(methods) + " |"
        yield "|---|" + "---:|" * len(methods)
        for pair, answers in found.items():
            cells = [
                f"{fmean(one[what] for one in answers[name]):.4f}" if name in answers else "-"
                for name in methods
            ]
            yield f"| {pair} | " + " | ".join(cells) + " |"


def summary(found):
    """The lines people ask for first."""
    for what, title in (("huc", "HUC"), ("log_loss", "log loss")):
        gaps = {pair: compare_pair(methods, what) for pair, methods in found.items()}
        better = [gap[NOTHING][0] < 0 for gap in gaps.values()]
        worse = [pair for pair, gap in gaps.items() if gap[NOTHING][0] > gap[NOTHING][1]]
        close = [
            all(mean <= max(error, 1e-12) for name, (mean, error) in gap.items() if name != NOTHING)
            for gap in gaps.values()
        ]
        yield (
            f"- {title}: lower than doing nothing in {sum(better)} of {len(better)} pairs"
            f"{'; worse beyond one standard error: ' + ', '.join(worse) if worse else ''}; best or "
            f"within one standard error of the best peer in {sum(close)} of {len(close)}."
        )


def calibrated_table(found):
    """What repairs cost where nothing is wrong: log loss less that of doing nothing."""
    methods = sorted({name for pair in found.values() for name in pair} - {NOTHING})
    yield "| labels drawn as predicted | " + " | ".join(methods) + " |"
    yield "|---|" + "---:|" * len(methods)
    costs = defaultdict(list)
    for pair, answers in found.items():
        cells = []
        for name in methods:
            cost = None
            if name in answers:
                both = zip(answers[name], answers[NOTHING], strict=True)
                cost = fmean(one["log_loss"] - other["log_loss"] for one, other in both)
                costs[name].append(cost)
            cells.append("-" if cost is None else f"{cost:+.4f}")
        yield f"| {pair} | " + " | ".join(cells) + " |"
    yield "| mean | " + " | ".join(f"{fmean(costs[name]):+.4f}" for name in methods) + " |"


def segment_table(peers):
    """Searches for a planted segment, and what they claim where nothing is wrong."""
    rows = []
    for peer, results in peers.items():
        for name, answers in results.get("discover", {}).items():
            planted, clean = (
                [one for key, one in answers.items() if key.startswith(kind) and "claimed" in one]
                for kind in ("planted", "calibrated")
            )
            if planted and clean:
                hit = sum(one["best"] > 0.5 for one in planted)
                fits = median(one["best"] for one in planted)
                false = sum(one["claimed"] > 0 for one in clean)
                rows.append(
                    f"| {peer}: {name} | {hit} of {len(planted)} | {fits:.2f} | {false} of "
                    f"{len(clean)} | {fmean(one['seconds'] for one in planted):.2g} |"
                )
    if rows:
        yield "| | more than half right | overlap, median | claimed on calibrated rows | s |"
        yield "|---|---:|---:|---:|---:|"
        yield from rows


def losses(pairs):
    """Pairs that another mends better, by figure."""
    for what, title in FIGURES.items():
        sign = -1 if what in HIGHER else 1
        worse = []
        for pair, methods in pairs.items():
            gaps = compare_pair(methods, what)
            name, (mean, error) = max(gaps.items(), key=lambda item: sign * item[1][0])
            if sign * mean > max(error, 1e-12):
                gap = f"{abs(mean):.4f} (standard error {error:.4f})"
                worse.append(f"{name} on {pair}, by {gap}")
        if worse:
            better = "higher" if what in HIGHER else "lower"
            n = f"{len(worse)} of {len(pairs)} pairs"
            yield f"- {title}, {better} in {n}: {'; '.join(worse)}."


def less_effort(peers):
    """Where another takes fewer lines, seconds or bytes."""
    table = {name: effort(peer) for name, peer in peers.items()}
    for n in sorted({int(n) for peer in peers.values() for n in peer.get("speed", {})}):
        for name, peer in peers.items():
            table[name][f"MB of memory at {n:,} rows"] = (
                peer.get("speed", {}).get(str(n), {}).get("peak_mb")
            )
    seconds = "seconds to find a segment"
    for name, peer in peers.items():
        for answers in peer.get("discover", {}).values():
            spent = [one["seconds"] for key, one in answers.items() if key.startswith("planted")]
            table[name][seconds] = fmean(spent)
    ours = table.pop("huc", {})
    for what, mine in ours.items():
        less = {name: one[what] for name, one in table.items() if one.get(what) is not None}
        less = {name: value for name, value in less.items() if mine and value < mine}
        if less:
            ranked = sorted(less.items(), key=lambda item: item[1])
            named = ", ".join(f"{name} {short(value)}" for name, value in ranked)
            yield f"- {what[0].upper()}{what[1:]}: {named}; huc-monitor {short(mine)}."


def slower(peers):
    """Where another takes less time for the same."""
    ours = peers.get("huc", {}).get("speed", {})
    for name, peer in peers.items():
        for n, one in peer.get("speed", {}).items():
            for title, (what, theirs) in COMPARED.items():
                if theirs in one and one[theirs] < ours.get(n, {}).get(what, 0.0):
                    ratio = ours[n][what] / one[theirs]
                    times = float(f"{ratio:.2g}")
                    yield f"- {title}, {int(n):,} rows: {name} is {times:,g} times as fast."


def left_out(peers, results):
    """What was stopped, refused or not run."""
    for name, peer in peers.items():
        for what, title in PARTS.items():
            for variant, answers in peer.get(what, {}).items() if what != "speed" else ():
                yield from missed(f"{name}: {variant}, {title}", answers)
        for n, one in peer.get("speed", {}).items():
            if "refused" in one:
                yield f"- {name}, speed at {int(n):,} rows: {one['refused']}."
    notes = results / "notes.json"  # of results that come from several runs
    if notes.exists():
        yield from (f"- {note}" for note in json.loads(notes.read_text("utf-8")))
    yield from (f"- {wrong}." for wrong in last_run(results).get("wrong", ()))


def missed(title, answers):
    """Tasks of one method that have no answer, and why."""
    why = {
        "stopped": "stopped after {} s of processor time for one task",
        "refused": "it ended with `{}`",
    }
    for key, text in why.items():
        some = {task: one[key] for task, one in answers.items() if key in one}
        if some:
            sets = sorted({NAMES.get(task.split("-")[0], task) for task in some})
            reason = text.format(next(iter(some.values())))
            yield f"- {title}: {len(some)} of {len(answers)} tasks ({', '.join(sets)}), {reason}."


def last_run(results):
    """What the last run stored of itself."""
    path = results / "run.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def run_table(results):
    """What the last run took, by peer and part."""
    run = last_run(results)
    if not run:
        return
    yield (
        f"The last run ({', '.join(PARTS[what] for what in run['what'])}; "
        f"{', '.join(run['peers'])}) took {run['clock_minutes']:.0f} minutes on the clock and "
        f"{run['processor_minutes']:.0f} of processor time, on {run['cores']} cores with a load of "
        f"{run['load']:.0f} at its end. Processor seconds of its parts, imports included:\n"
    )
    yield "| | " + " | ".join(PARTS.values()) + " |"
    yield "|---|" + "---:|" * len(PARTS)
    for name, costs in run["processor_seconds"].items():
        cells = [short(costs[what]) if what in costs else "-" for what in PARTS]
        yield f"| {name} | " + " | ".join(cells) + " |"


def speed_lines(peers):
    """The ratios that people ask for, at every size that both were run at."""
    ours = peers.get("huc", {}).get("speed", {})
    for title, (what, theirs) in COMPARED.items():
        for name in ("nannyml", "mapie", "mcgrad"):
            other = peers.get(name, {}).get("speed", {})
            both = [n for n in ours if what in ours[n] and theirs in other.get(n, {})]
            ratios = [
                f"{scaled(other[n], n)}{short(other[n][theirs] / ours[n][what])} at {int(n):,} rows"
                for n in sorted(both, key=int)
            ]
            if ratios:
                yield f"- {title}: time of {name} over that of huc-monitor {', '.join(ratios)}."
    if any(peer.get("speed") for peer in peers.values()):
        yield ""


def scaled(one, n):
    """A figure scaled up from fewer rows is too small where time grows faster than rows."""
    return "at least " if one.get("rows_measured", int(n)) < int(n) else ""


def speed_table(peers):
    """Seconds and memory in processes of their own, in one run."""
    sizes = sorted({int(n) for peer in peers.values() for n in peer.get("speed", {})})
    if not sizes:
        return
    yield "| | " + " | ".join(f"{n:,} rows" for n in sizes) + " |"
    yield "|---|" + "---:|" * len(sizes)
    rows = {
        "twenty_windows": "twenty windows, s",
        "calibration": "one audit or report, s",
        "calibration" + EACH: "the same, ms per candidate",
        "sharp": "one audit with closed bounds, s",
        "sharp" + EACH: "the same, ms per candidate",
        "plain": "one audit without bounds, s",
        "plain" + EACH: "the same, ms per candidate",
        "calibration_large": "one audit of 60 leaves, s",
        "calibration_large" + EACH: "the same, ms per candidate",
        "sharp_large": "one audit of 60 leaves with closed bounds, s",
        "sharp_large" + EACH: "the same, ms per candidate",
        "plain_large": "one audit of 60 leaves without bounds, s",
        "plain_large" + EACH: "the same, ms per candidate",
        "sequential": "updates as rows come, s",
        "peak_mb": "memory, MB",
    }
    for what, title in rows.items():
        for name, peer in peers.items():
            cells = [peer.get("speed", {}).get(str(n), {}).get(what) for n in sizes]
            if any(cell is not None for cell in cells):
                scale = 1000 if what.endswith(EACH) else 1
                shown = ["-" if cell is None else short(scale * cell) for cell in cells]
                yield f"| {name}: {title} | " + " | ".join(shown) + " |"


def short(value):
    """Three digits, never in powers of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def effort(peer):
    """What it takes to have it; None where there is nothing to count."""
    lines, sizes = peer.get("lines", {}), list(peer.get("speed", {}).values())
    page = sizes[0] if sizes else {}
    return {
        "lines of code to detect": lines.get("detect"),
        "lines of code to recalibrate": lines.get("recalibrate"),
        "lines of code to find segments": lines.get("discover"),
        "seconds of installation": peer.get("install_seconds"),
        "kB of a page": page.get("page_kb"),
        "addresses outside in a page": page.get("outside"),
    }


def effort_table(peers):
    """One row for each peer."""
    yield "| | " + " | ".join(effort({})) + " |"
    yield "|---|" + "---:|" * len(effort({}))
    for name, peer in peers.items():
        cells = ["-" if cell is None else short(cell) for cell in effort(peer).values()]
        yield "| " + " | ".join([name, *cells]) + " |"


def write_page(results: Path, page: Path) -> None:
    """Write the page and its picture."""
    peers, (pairs, calibrated) = load(results), recalibration(results)
    found = detection(peers)
    guilty = {("massive", "swap"): ("calendar", "app"), ("massive", "noise"): ("calendar", ""),
              ("kdd", "swap"): ("probe", "app"), ("kdd", "noise"): ("probe", ""),
              ("support2", "swap"): ("milder", "app"), ("attack", "new"): ("dos", "")}  # fmt: skip
    text = Path(__file__).with_name("page.md").read_text("utf-8")
    parts = {
        "losses": chain(sooner(found), losses(pairs), slower(peers), less_effort(peers)),
        "reasons": reasons(found),
        "detection": detection_table(found, guilty),
        "summary": summary(pairs),
        "recalibration": recalibration_table(pairs),
        "calibrated": calibrated_table(calibrated) if calibrated else (),
        "segments": segment_table(peers),
        "speed": chain(speed_lines(peers), speed_table(peers)),
        "effort": effort_table(peers),
        "left": left_out(peers, results),
        "run": run_table(results),
    }
    sections = text.split("\n## ")
    for name, lines in parts.items():
        filled = "\n".join(lines)
        missing = not pairs if name in {"summary", "recalibration", "calibrated"} else not filled
        if missing and name not in EMPTY:  # a part that was not run has no section
            sections = [one for one in sections if f"{{{name}}}" not in one]
        sections = [one.replace(f"{{{name}}}", filled or EMPTY.get(name, "")) for one in sections]
    page.write_text("\n## ".join(sections), "utf-8")
    page.with_name("peers.svg").write_text(picture(found), "utf-8")
