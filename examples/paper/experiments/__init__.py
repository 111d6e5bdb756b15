"""The paper's experiments: data preparation, base predictors, methods, protocol and tables."""
