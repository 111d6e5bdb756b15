# The names of the package, listed once: type checkers read this file, and so does lazy_loader.
from ._flavor import FLAVOR_NAME as FLAVOR_NAME
from ._flavor import load_model as load_model
from ._flavor import log_model as log_model
from ._flavor import save_model as save_model
from ._lease import BusyError as BusyError
from ._recalibration_host import MLflowRecalibrationHost as MLflowRecalibrationHost
from ._registry import Move as Move
from ._registry import Registry as Registry
from ._registry import promote as promote
from ._registry import register_recalibrated as register_recalibrated
from ._registry import rollback as rollback
from ._tracker import MLflowTracker as MLflowTracker
