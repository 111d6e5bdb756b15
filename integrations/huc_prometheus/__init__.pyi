# The names of the package, listed once: type checkers read this file, and so does lazy_loader.
from ._exporter import PrometheusExporter as PrometheusExporter
from ._shipped import dashboard as dashboard
from ._shipped import rules as rules
