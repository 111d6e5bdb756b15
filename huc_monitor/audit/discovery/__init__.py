"""Subgroups that nobody named: searched on one part of the rows, certified on the other."""
