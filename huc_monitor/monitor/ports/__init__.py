"""What the monitor asks of its hosts: tracker, notifier, exporter, attachment."""
