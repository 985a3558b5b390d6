"""The tree of one experiment's settings: one complete YAML file."""

from asr.config import Settings, one_of
from asr.features.frontend import FrontendSettings
from asr.models.hybrid import HybridSettings
from asr.training.optimizer import AdamSettings, AdamWSettings
from asr.training.schedule import ConstantSettings, CosineSettings, NoamSettings
from asr.training.settings import DataSettings, TrainingSettings


class Experiment(Settings):
    """Everything that makes a result, but for the recordings themselves."""

    out: str  # the model folder
    seed: int
    tokenizer: str  # folder of asr-tokenizer
    data: DataSettings
    features: FrontendSettings
    model: HybridSettings
    optimizer: one_of(AdamSettings, AdamWSettings)
    schedule: one_of(NoamSettings, CosineSettings, ConstantSettings)
    training: TrainingSettings
