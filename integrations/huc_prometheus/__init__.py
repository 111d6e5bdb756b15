"""HUC in Prometheus: gauges with a bounded number of series, scraped, pushed or as a text file."""
