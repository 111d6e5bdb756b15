# For whoever has predicted probabilities, labels and a tree over the classes, and wants to know
# whether the probabilities can be trusted in every branch.
# Replace the three made-up inputs (tree, predicted, happened) by your own.
"""Audit predictions in ten lines."""

from __future__ import annotations

import numpy as np

import huc_monitor as hm

rng = np.random.default_rng(0)
tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": ["wolf", "fox"]})
predicted = rng.dirichlet([1, 1, 1, 1], 5_000)
truth = predicted[:, [1, 0, 2, 3]]  # the model mistakes lions for lynxes, and the other way round
happened = [rng.choice(tree.leaves, p=row) for row in truth]

result = hm.audit(predicted, happened, tree=tree, utilities=[hm.LevelCorrectness(level=2)])
worst = result.worst
print(f"UC {result.uc:.3f}, HUC {result.huc:.3f} from {len(happened):,} labels")
print(f"worst: {worst.node!r}, moment {worst.moment:+.3f}, at least {worst.lower:.3f}")
