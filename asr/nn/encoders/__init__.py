"""The kinds of encoder. One more is a file in this folder and its name in `AnyEncoder`."""

from typing import Annotated

from pydantic import Field

from asr.nn.encoders.conformer import ConformerSettings
from asr.nn.encoders.e_branchformer import EBranchformerSettings
from asr.nn.encoders.pretrained import PretrainedSettings
from asr.nn.encoders.transformer import TransformerSettings

AnyEncoder = Annotated[
    TransformerSettings
    | ConformerSettings
    | EBranchformerSettings
    | PretrainedSettings,  # each has `build(features)`
    Field(discriminator="kind"),
]
