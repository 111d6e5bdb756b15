# The names of the package, listed once: type checkers read this file, and so does lazy_loader.
from ._attachment import DriftAttachment as DriftAttachment
from ._dashboard import add_panels as add_panels
from ._metrics import HUCChange as HUCChange
from ._metrics import HUCMoment as HUCMoment
from ._metrics import HUCSummary as HUCSummary
from ._preset import HUCPreset as HUCPreset
