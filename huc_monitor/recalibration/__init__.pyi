# The names of the package, listed once: type checkers read this file, and so does lazy_loader.
from ._boost import HUCBoost as HUCBoost
from ._boost import UCBoost as UCBoost
from ._boost import compiled_updates as compiled_updates
from ._classifier import HUCCalibratedClassifier as HUCCalibratedClassifier
from ._history import Checks as Checks
from ._scalings import DirichletScaling as DirichletScaling
from ._scalings import Scaling as Scaling
from ._scalings import TemperatureScaling as TemperatureScaling
from ._scalings import VectorScaling as VectorScaling
from ._stage import stage_of as stage_of
from ._updates import Update as Update
