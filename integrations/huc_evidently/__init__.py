"""HUC in Evidently: a preset with a metric per node, its bounds, and tests on the tolerance."""
