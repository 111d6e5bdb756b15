"""Predictions in every form that logs have them in, read by one reader."""
