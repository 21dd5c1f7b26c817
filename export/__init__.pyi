from .attention.mechanism import Mechanism as Mechanism
from .attention.plan import Plan as Plan
from .attention.plan import read_plan as read_plan
from .attention.registry import mechanism as mechanism
from .options import ExportOptions as ExportOptions
from .pipeline import export_model as export_model
from .pipeline import export_module as export_module
from .report.export_result import ExportResult as ExportResult
