"""What can be trained: one file for each kind of model, and its name here.

A kind brings two things, whose protocols stand in asr/training/task.py: an Experiment, the tree of
its settings, which builds the model and reads its data; and a Task, which has both, the loss, and
the validation.
"""

from asr.config import by_part
from asr.tasks.language_model import LanguageModelExperiment, LanguageModelTask
from asr.tasks.recognizer import RecognizerExperiment, RecognizerTask
from asr.tasks.translator import TranslatorExperiment, TranslatorTask

__all__ = [
    "Experiment",
    "LanguageModelExperiment",
    "LanguageModelTask",
    "RecognizerExperiment",
    "RecognizerTask",
    "TranslatorExperiment",
    "TranslatorTask",
]

# told apart by model.kind
Experiment = by_part("model", RecognizerExperiment, LanguageModelExperiment, TranslatorExperiment)
