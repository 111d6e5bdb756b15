# For assistants and help desks that may answer, answer vaguely, or hand over to a person: is the
# confidence that decides between the three worth what it promises?
# SelectiveReport gives each of the three its payoff; thresholds and payoffs are yours to set.
"""Audit a classifier of support tickets that may abstain."""

from __future__ import annotations

import numpy as np

import huc_monitor as hm

TREE = hm.LabelTree.from_nested(
    {
        "billing": ["refund", "card_declined", "invoice_copy"],
        "account": ["reset_password", "close_account", "change_email"],
        "delivery": ["where_is_it", "damaged", "wrong_item"],
    },
    root="ticket",
)
# An automatic answer saves 8 EUR when right; one about the right topic still helps a little.
REPORT = hm.SelectiveReport(
    group_threshold=0.55,
    leaf_threshold=0.7,
    name="answer",
    group_right=0.25,
    leaf_sibling=-0.5,
    units="EUR",
    scale=8.0,
)


def main() -> None:
    """Compare what confidence promises with what the answers were worth."""
    rng = np.random.default_rng(0)
    n = 20_000
    topic = rng.dirichlet([0.4, 0.4, 0.4], n)
    intent = rng.dirichlet([0.25] * 3, (n, 3))
    predicted = (topic[:, :, None] * intent).reshape(n, TREE.n_leaves)
    # A new returns policy: "damaged" and "wrong_item" are told apart worse than the model believes.
    truth = intent.copy()
    truth[:, 2, 1:] = 0.5 * truth[:, 2, 1:] + 0.5 * truth[:, 2, :0:-1]
    happened = (topic[:, :, None] * truth).reshape(n, TREE.n_leaves)
    codes = (happened.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=8)

    heaviest = topic.argmax(axis=1)
    inside = intent[np.arange(n), heaviest].max(axis=1)
    silent = topic.max(axis=1) < REPORT.group_threshold
    vague = ~silent & (inside < REPORT.leaf_threshold)
    print(f"handed over {silent.mean():.0%}, topic only {vague.mean():.0%}, ", end="")
    print(f"answered {(~silent & ~vague).mean():.0%}")

    result = hm.audit(predicted, codes, tree=TREE, utilities=[REPORT], rng=0)
    table = result.to_frame().sort_values("moment", key=abs, ascending=False)
    for row in table.itertuples():
        verdict = "overstated" if row.moment < 0 else "understated"
        sure = (
            "shown to be" if max(row.moment_lower, -row.moment_upper) > 0.005 else "not shown to be"
        )
        print(f"{row.node:>9}: {row.moment_in_units:+.2f} {row.units} a ticket, {sure} {verdict}")


if __name__ == "__main__":
    main()
