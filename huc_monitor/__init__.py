"""Monitor and repair the utility calibration of hierarchical multiclass classifiers.

Names are loaded on first use, so that ``import huc_monitor`` costs little more than
numpy and pandas: compiled kernels, scipy and the command line load only when called.
`lazy_loader` reads them from ``__init__.pyi``, and keeps ``huc_monitor.audit`` the function when
the folder of the same name is imported.
"""

from __future__ import annotations

import copyreg
import sys
from importlib import import_module

from lazy_loader import attach_stub

__version__ = "0.1.0"

__getattr__, _, __all__ = attach_stub(__name__, __file__)
__all__ += ["__version__"]

# Functions that mention the package travel to worker processes, which import it by name. Python
# knows that of plain modules; lazy_loader's guard of the name `audit` is another type.
copyreg.pickle(type(sys.modules[__name__]), lambda module: (import_module, (module.__name__,)))


def __dir__() -> list[str]:
    return __all__
