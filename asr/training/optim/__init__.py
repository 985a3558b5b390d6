"""Optimizers, and schedules of their learning rate. A new one is one file here, and its settings' name in a list."""

from typing import Annotated

from pydantic import Field

from asr.training.optim.adam import AdamSettings, AdamWSettings
from asr.training.optim.muon import MuonSettings
from asr.training.optim.schedule import ConstantSettings, CosineSettings, NoamSettings, WSDSettings

OptimizerSettings = Annotated[
    AdamSettings | AdamWSettings | MuonSettings,  # each has `build(model, group)`
    Field(discriminator="kind"),
]
ScheduleSettings = Annotated[
    NoamSettings
    | CosineSettings
    | WSDSettings
    | ConstantSettings,  # each has `factor(step, progress)`
    Field(discriminator="kind"),
]

__all__ = ["OptimizerSettings", "ScheduleSettings"]
