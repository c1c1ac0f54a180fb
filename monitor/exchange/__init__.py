"""Questions out, answers in, by files: for a batch service, a model without a network, or a person.

`export_questions(...)` writes what is to be asked; `import_answers(...)` reads what came back, writes judgements,
and what is still to be asked as a new export.
"""

from monitor.exchange.incoming import exported, import_answers, recorded
from monitor.exchange.outgoing import export_questions
from monitor.exchange.report import ExportSummary, ImportSummary

__all__ = ["ExportSummary", "ImportSummary", "export_questions", "exported", "import_answers", "recorded"]
