"""Error rates of hypotheses, their intervals, and the difference of two systems."""

from asr.scoring.error_rate import ErrorRate
from asr.scoring.report import Report, Score, score, units_of
from asr.scoring.significance import Difference

__all__ = ["Difference", "ErrorRate", "Report", "Score", "score", "units_of"]
