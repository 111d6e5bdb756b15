"""The streams with faults: figures, tables, reasons and picture of docs/peers.md."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean, median

FAULTY_FROM, REFERENCE_DAYS, PER_DAY = 6, 3, 1_000
NAMES = {"massive": "MASSIVE", "kdd": "NSL-KDD", "support2": "SUPPORT2", "attack": "NSL-KDD"}
FAULTS = {"swap": "two leaves swapped in one group", "noise": "split meaningless",
          "new": "attack the model never saw"}  # fmt: skip
COLOURS = ["#1b6ca8", "#d1495b", "#edae49", "#66a182", "#7d5ba6", "#2e4057"]
COLUMNS = (
    "monitor",
    "labels until told",
    "at no false alarm",
    "huc-monitor earlier, same, later",
    "false per 100 days",
    "branch named",
    "group named",
)
NEVER = 6_000  # where the picture ends
OURS = "huc: init and check"
ACCURACY = "evidently: accuracy and F1"  # its number is the change in accuracy over all rows


def detection(peers):
    """By peer and fault: delays at its own level and at no false alarm, false alarms, names."""
    found = {
        f"{peer}: {variant}": one_detector(streams)
        for peer, results in peers.items()
        for variant, streams in results.get("detect", {}).items()
    }
    return {name: found[name] for name in sorted(found, key=lambda name: name != OURS)}


def one_detector(streams):
    """Figures of one detector over all streams."""
    good = {name: streams[name]["days"] for name in sorted(streams) if "days" in streams[name]}
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
        answer["seeds"].append(name)
        answer["first"].append(late[0][1])
        answer["largest"] = max(sizes) if None not in sizes else None
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


def all_kinds(found):
    """Data set and fault of every stream."""
    return sorted({kind for answers in found.values() for kind in answers})


def titled(kind):
    """Data set and fault in words."""
    return f"{NAMES[kind[0]]}: {FAULTS[kind[1]]}"


def beside(ours, one):
    """Streams of the same seed in which huc-monitor tells earlier, on the same day, and later."""
    if not ours or not one["equal"]:
        return "-"
    mine = dict(zip(ours["seeds"], ours["own"], strict=True))
    both = [
        (mine[seed], theirs)
        for seed, theirs in zip(one["seeds"], one["equal"], strict=True)
        if seed in mine
    ]
    counts = (
        sum(a < b for a, b in both),
        sum(a == b for a, b in both),
        sum(a > b for a, b in both),
    )
    return ", ".join(map(str, counts))


def rivals(found, kind):
    """Our median delay, and that of every other monitor at no false alarm, by name."""
    ours = median(found[OURS][kind]["own"]) if kind in found.get(OURS, {}) else math.inf
    others = {
        name: median(answers[kind]["equal"])
        for name, answers in found.items()
        if name != OURS and kind in answers and answers[kind]["equal"]
    }
    return ours, others


def sooner(found):
    """Faults that another monitor would tell earlier."""
    for kind in all_kinds(found):
        ours, others = rivals(found, kind)
        for name, theirs in others.items():
            if theirs < ours:
                yield (
                    f"- {titled(kind)}: {name} would tell after {theirs:,.0f} labels if its level "
                    f"were set with hindsight so that no clean day alarms; huc-monitor tells after "
                    f"{told([ours])}."
                )


def reasons(found):
    """For every fault: whom huc-monitor is ahead of, and why not of the others."""
    for kind in all_kinds(found):
        ours, others = rivals(found, kind)
        behind = [name for name, theirs in others.items() if theirs > ours]
        level = {
            name: "level with" if theirs == ours else "behind"
            for name, theirs in others.items()
            if theirs <= ours
        }
        ahead = ", ".join(behind) if level else "every other monitor"
        parts = [f"ahead of {ahead}"] if behind else []
        for word in ("level with", "behind"):
            names = [by_itself(name, found[name][kind]) for name in level if level[name] == word]
            parts += [f"{word} {', '.join(names)}"] if names else []
        text = "; ".join(parts) or "no other monitor was run"
        why = moved(found, kind) if level else ""
        yield f"- **{titled(kind)}.** {text[0].upper()}{text[1:]}.{why}"


def by_itself(name, one):
    """What a monitor does at the level it comes with."""
    false = f"{100 * fmean(one['false']):.0f} false alarms in 100 days"
    return f"{name} (by itself: {told(one['own'])}, {false})"


def moved(found, kind):
    """How far accuracy over all rows moves: what every monitor of accuracy can see."""
    one = found.get(ACCURACY, {}).get(kind)
    if not one or one["largest"] is None:
        return ""
    first, largest = 100 * median(one["first"]), 100 * one["largest"]
    text = (
        f" Accuracy over all rows moves by {first:.1f} points on the first faulty day, and by up "
        f"to {largest:.1f} on a clean one"
    )
    if first > largest:
        return f"{text}: a level between the two, which hindsight gives, tells on that day."
    return f"{text}, so it takes more than accuracy over all rows to tell on that day."


def detection_table(found, guilty):
    """One table for each fault."""
    for kind in all_kinds(found):
        branch, subgroup = guilty[kind]
        yield f"\n### {titled(kind)}\n"
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
                "-" if name == OURS else beside(found.get(OURS, {}).get(kind), one),
                f"{100 * fmean(one['false']):.0f}",
                f"{branches} of {n}",
                "-" if groups is None else f"{groups} of {n}",
            ]
            yield "| " + " | ".join(cells) + " |"


def picture(found) -> str:
    """Labels until a fault is told, at no false alarm: a row for each monitor."""
    kinds = all_kinds(found)
    width, left, bottom = 860, 300, 40 + 26 * len(found)
    box = f"0 0 {width} {bottom + 18 * len(kinds) + 4}"
    font = 'font-family="sans-serif" font-size="12"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" {font} role="img">',
        "<title>Labels until a fault is told, by monitor</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left - 20}" y="14" text-anchor="end">labels at no false alarm</text>',
    ]
    day = (width - left - 50) * PER_DAY // NEVER

    def place(labels):
        return left + day * min(labels, NEVER) / PER_DAY

    for labels in range(PER_DAY, NEVER + 1, PER_DAY):
        x, text = round(place(labels)), "never" if labels == NEVER else f"{labels:,}"
        fill = "#f2f2f2" if labels // PER_DAY % 2 else "white"
        out += [
            f'<rect x="{x - day // 2}" y="20" width="{day}" height="{bottom - 36}" fill="{fill}"/>',
            f'<text x="{x}" y="14" text-anchor="middle" fill="#555">{text}</text>',
        ]
    for row, (name, answers) in enumerate(found.items()):
        y = 34 + 26 * row
        out.append(f'<text x="{left - 20}" y="{y + 4}" text-anchor="end">{name}</text>')
        for k, kind in enumerate(kinds):
            one = answers.get(kind, {})
            if delays := one.get("own" if name == OURS else "equal"):
                x = place(median(delays)) + 11 * (k - (len(kinds) - 1) / 2)
                out.append(dot(x, y, k))
    for k, kind in enumerate(kinds):
        y = bottom + 18 * k + 8
        out += [dot(left, y - 4, k), f'<text x="{left + 14}" y="{y}">{titled(kind)}</text>']
    return "\n".join([*out, "</svg>", ""])


def dot(x, y, k):
    """A point of the k-th fault."""
    return f'<circle cx="{x:.0f}" cy="{y}" r="5" fill="{COLOURS[k % 6]}"/>'
