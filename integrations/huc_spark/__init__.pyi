# The names of the package, listed once: type checkers read this file, and so does lazy_loader.
from ._audit import audit as audit
from ._audit import shuffle_bytes_per_row as shuffle_bytes_per_row
from ._engine import SparkEngine as SparkEngine
from ._recalibration import SampledFit as SampledFit
from ._recalibration import fit_on_sample as fit_on_sample
from ._recalibration import predict_proba as predict_proba
from ._source import SparkSource as SparkSource
from ._table import SparkTable as SparkTable
