"""Simultaneous confidence bounds on moments: closed forms and the multiplier bootstrap."""
