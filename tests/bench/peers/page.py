"""Writes docs/peers.md from the stored figures: no number on that page is typed by hand."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from itertools import chain
from pathlib import Path
from statistics import fmean, median, stdev

FAULTY_FROM, REFERENCE_DAYS, PER_DAY = 6, 3, 1_000
NAMES = {"massive": "MASSIVE", "kdd": "NSL-KDD", "support2": "SUPPORT2", "attack": "NSL-KDD"}
FAULTS = {"swap": "two leaves swapped in one group", "noise": "split meaningless",
          "new": "attack the model never saw"}  # fmt: skip
COLOURS = ["#1b6ca8", "#d1495b", "#edae49", "#66a182", "#7d5ba6", "#2e4057"]
COLUMNS = (
    "monitor",
    "labels until told",
    "at no false alarm",
    "false per 100 days",
    "branch named",
    "group named",
)
FIGURES = {
    "huc": "HUC",
    "log_loss": "Log loss",
    "ece": "Calibration error of the likeliest class",
    "accuracy": "Accuracy",
}
COMPARED = {  # our figure, and the other's
    "twenty windows, with bounds": ("twenty_windows", "twenty_windows"),
    "updates as rows come": ("sequential", "sequential"),
    "per candidate, ours with bounds": ("per_candidate", "per_candidate"),
    "per candidate, both without bounds": ("plain_per_candidate", "per_candidate"),
}
NEVER = 6_000  # where the picture ends
OURS = "huc: init and check"
BOOST, NOTHING = "huc: HUC-Boost", "sklearn: nothing"


def load(results: Path) -> dict[str, dict]:
    """Every peer's figures by its name."""
    return {
        path.stem.removesuffix("_peer"): json.loads(path.read_text("utf-8"))
        for path in sorted(results.glob("*_peer.json"))
    }


def detection(peers):
    """By peer and fault: delays at its own level and at no false alarm, false alarms, names."""
    found = defaultdict(dict)
    for peer, results in peers.items():
        for variant, streams in results.get("detect", {}).items():
            found[f"{peer}: {variant}"] = one_detector(streams)
    return found


def one_detector(streams):
    """Figures of one detector over all streams."""
    good = {name: item["days"] for name, item in streams.items() if "days" in item}
    clean = defaultdict(list)
    for name, days in good.items():
        data, fault, _ = name.split("-")
        until = len(days) if fault == "none" else FAULTY_FROM - REFERENCE_DAYS
        clean[data] += days[:until]
    answers = {}
    for name, days in good.items():
        data, fault, _ = name.split("-")
        if fault == "none":
            continue
        answer = answers.setdefault((data, fault), defaultdict(list))
        late = days[FAULTY_FROM - REFERENCE_DAYS :]
        answer["own"].append(delay([bool(alarm) for alarm, *_ in late]))
        sizes = [size for _, size, _ in clean[data]]
        if None not in sizes:
            answer["equal"].append(delay([size > max(sizes) for _, size, _ in late]))
        elif not any(alarm for alarm, *_ in clean[data]):
            answer["equal"].append(answer["own"][-1])
        first = next((names for alarm, _, names in late if alarm), [])
        answer["names"].append(first)
        answer["false"] = [bool(alarm) for alarm, *_ in clean[data]]
    return answers


def delay(alarms):
    """Labels until the first alarm, infinite if none comes."""
    return next((PER_DAY * (k + 1) for k, alarm in enumerate(alarms) if alarm), math.inf)


def told(delays):
    """The median in words."""
    if not delays:
        return "-"
    middle = median(delays)
    return "never" if math.isinf(middle) else f"{middle:,.0f}"


def detection_table(found, guilty):
    """One table for each fault."""
    kinds = sorted({kind for answers in found.values() for kind in answers})
    for kind in kinds:
        branch, subgroup = guilty[kind]
        yield f"\n### {NAMES[kind[0]]}: {FAULTS[kind[1]]}\n"
        yield "| " + " | ".join(COLUMNS) + " |"
        yield "|---" + "|---:" * (len(COLUMNS) - 1) + "|"
        for name, answers in found.items():
            if kind not in answers:
                continue
            one = answers[kind]
            n = len(one["names"])
            branches = sum(branch in names for names in one["names"])
            groups = sum(subgroup in names for names in one["names"]) if subgroup else None
            cells = [
                name,
                told(one["own"]),
                told(one["own"] if name == OURS else one["equal"]),
                f"{100 * fmean(one['false']):.0f}",
                f"{branches} of {n}",
                "-" if groups is None else f"{groups} of {n}",
            ]
            yield "| " + " | ".join(cells) + " |"


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


def losses(found, pairs):
    """Where another does better: streams told later, pairs mended less."""
    for kind in sorted({kind for answers in found.values() for kind in answers}):
        mine = median(found[OURS][kind]["own"]) if kind in found[OURS] else math.inf
        for name, answers in found.items():
            if name == OURS or kind not in answers or not answers[kind]["equal"]:
                continue
            theirs = median(answers[kind]["equal"])
            if theirs < mine:
                yield (
                    f"- {NAMES[kind[0]]}, {FAULTS[kind[1]]}: {name} would tell after "
                    f"{theirs:,.0f} labels if its level were set with hindsight so that no clean "
                    f"day alarms; huc-monitor tells after {told([mine])}."
                )
    for what, title in (("huc", "HUC"), ("log_loss", "log loss")):
        for pair, methods in pairs.items():
            gaps = compare_pair(methods, what)
            name, (mean, error) = max(gaps.items(), key=lambda item: item[1][0])
            if mean > max(error, 1e-12):
                gap = f"{mean:.4f} (standard error {error:.4f})"
                yield f"- {pair}: {title} of {name} is lower by {gap}."


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
    """What was not run, and how long the rest took."""
    kinds = {"detect": "detection", "recalibrate": "recalibration", "discover": "segments"}
    for name, peer in peers.items():
        for what, title in kinds.items():
            for variant, answers in peer.get(what, {}).items():
                for why, text in (("stopped", "more than {} s of processor time for one task"),
                                  ("refused", "{}")):  # fmt: skip
                    missed = {key: one[why] for key, one in answers.items() if why in one}
                    if missed:
                        sets = sorted({NAMES.get(key.split("-")[0], key) for key in missed})
                        reason = text.format(next(iter(missed.values())))
                        yield (
                            f"- {name}: {variant}, {title}: {len(missed)} of {len(answers)} tasks "
                            f"({', '.join(sets)}). {reason.capitalize()}."
                        )
        for n, one in peer.get("speed", {}).items():
            if "refused" in one:
                yield f"- {name}, speed at {int(n):,} rows: {one['refused']}."
    notes = results / "notes.json"  # of results that come from several runs
    if notes.exists():
        yield from (f"- {note}" for note in json.loads(notes.read_text("utf-8")))
    path = results / "run.json"
    if path.exists():
        run = json.loads(path.read_text("utf-8"))
        yield (
            f"- The last run ({', '.join(run['what'])} of {', '.join(run['peers'])}) took "
            f"{run['clock_minutes']:.0f} minutes on the clock and {run['processor_minutes']:.0f} "
            f"of processor time, on {run['cores']} cores with a load of {run['load']:.0f}; "
            "environments that are there already are not made again."
        )


def speed_lines(peers):
    """The ratios that people ask for, at every size that both were run at."""
    ours = peers.get("huc", {}).get("speed", {})
    for title, (what, theirs) in COMPARED.items():
        for name in ("nannyml", "mapie", "mcgrad"):
            other = peers.get(name, {}).get("speed", {})
            both = [n for n in ours if what in ours[n] and theirs in other.get(n, {})]
            ratios = [
                f"{other[n][theirs] / ours[n][what]:,.3g} at {int(n):,} rows"
                for n in sorted(both, key=int)
            ]
            if ratios:
                yield f"- {title}: time of {name} over that of huc-monitor {', '.join(ratios)}."
    if any(peer.get("speed") for peer in peers.values()):
        yield ""


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
        "per_candidate": "the same, ms per candidate",
        "plain": "one audit without bounds, s",
        "plain_per_candidate": "the same, ms per candidate",
        "sequential": "updates as rows come, s",
        "peak_mb": "memory, MB",
    }
    for what, title in rows.items():
        for name, peer in peers.items():
            cells = [peer.get("speed", {}).get(str(n), {}).get(what) for n in sizes]
            if any(cell is not None for cell in cells):
                scale = 1000 if what.endswith("per_candidate") else 1
                shown = ["-" if cell is None else short(scale * cell) for cell in cells]
                yield f"| {name}: {title} | " + " | ".join(shown) + " |"


def short(value):
    """Three digits, never in powers of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def effort_table(peers):
    """What it takes to have it."""
    yield (
        "| | lines of code to detect | to recalibrate | to find segments | installation, s "
        "| page, kB | addresses outside in it |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, peer in peers.items():
        lines, sizes = peer.get("lines", {}), list(peer.get("speed", {}).values())
        page = sizes[0] if sizes else {}
        cells = [
            name,
            *(lines.get(what, "-") for what in ("detect", "recalibrate", "discover")),
            peer.get("install_seconds") or "-",
            page.get("page_kb", "-"),
            page.get("outside", "-"),
        ]
        yield "| " + " | ".join(map(str, cells)) + " |"


def picture(found) -> str:
    """Labels until a fault is told, at no false alarm: a row for each monitor."""
    kinds = sorted({kind for answers in found.values() for kind in answers})
    width, left, bottom = 860, 300, 40 + 26 * len(found)
    box = f"0 0 {width} {bottom + 24 * len(kinds)}"
    font = 'font-family="sans-serif" font-size="12"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" {font} role="img">',
        "<title>Labels until a fault is told, by monitor</title>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]

    def place(labels):
        return left + (width - left - 70) * min(labels, NEVER) / NEVER

    for labels in range(PER_DAY, NEVER + 1, PER_DAY):
        x, text = round(place(labels)), "never" if labels == NEVER else f"{labels:,}"
        out += [
            f'<line x1="{x}" x2="{x}" y1="20" y2="{bottom - 16}" stroke="#ddd"/>',
            f'<text x="{x}" y="14" text-anchor="middle" fill="#555">{text}</text>',
        ]
    for row, (name, answers) in enumerate(found.items()):
        y = 34 + 26 * row
        out.append(f'<text x="{left - 20}" y="{y + 4}" text-anchor="end">{name}</text>')
        for k, kind in enumerate(kinds):
            one = answers.get(kind, {})
            if delays := one.get("own" if name == OURS else "equal"):
                x = place(median(delays)) + 4 * (k - 2)
                out.append(dot(x, y, k))
    for k, (data, fault) in enumerate(kinds):
        y = bottom + 18 * k + 8
        text = f'<text x="{left + 14}" y="{y}">{NAMES[data]}: {FAULTS[fault]}</text>'
        out += [dot(left, y - 4, k), text]
    return "\n".join([*out, "</svg>", ""])


def dot(x, y, k):
    """A point of the k-th fault."""
    return f'<circle cx="{x:.0f}" cy="{y}" r="6" fill="{COLOURS[k % 6]}" fill-opacity="0.8"/>'


def write_page(results: Path, page: Path) -> None:
    """Write the page and its picture."""
    peers, (pairs, calibrated) = load(results), recalibration(results)
    found = detection(peers)
    found = {OURS: found.pop(OURS), **found}
    guilty = {("massive", "swap"): ("calendar", "app"), ("massive", "noise"): ("calendar", ""),
              ("kdd", "swap"): ("probe", "app"), ("kdd", "noise"): ("probe", ""),
              ("support2", "swap"): ("milder", "app"), ("attack", "new"): ("dos", "")}  # fmt: skip
    text = Path(__file__).with_name("page.md").read_text("utf-8")
    parts = {
        "losses": chain(losses(found, pairs), slower(peers)),
        "detection": detection_table(found, guilty),
        "summary": summary(pairs),
        "recalibration": recalibration_table(pairs),
        "calibrated": calibrated_table(calibrated) if calibrated else (),
        "segments": segment_table(peers),
        "speed": chain(speed_lines(peers), speed_table(peers)),
        "effort": effort_table(peers),
        "left": left_out(peers, results),
    }
    sections = text.split("\n## ")
    for name, lines in parts.items():
        filled = "\n".join(lines)
        missing = not pairs if name in {"summary", "recalibration", "calibrated"} else not filled
        if missing and name != "losses":  # a part that was not run has no section
            sections = [one for one in sections if f"{{{name}}}" not in one]
        sections = [one.replace(f"{{{name}}}", filled or "- Nowhere.") for one in sections]
    page.write_text("\n## ".join(sections), "utf-8")
    page.with_name("peers.svg").write_text(picture(found), "utf-8")
