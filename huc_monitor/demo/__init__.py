"""Made-up data for ``huc-monitor demo``."""
