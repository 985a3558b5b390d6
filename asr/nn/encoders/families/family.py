"""What a family of pretrained encoders is: its description, which our model folders keep, and the way through it.

B batch, S samples, T' frames, D model width, N layers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from asr import imports
from asr.config import Settings
from asr.errors import UserError
from asr.nn.subsampling import Strides
from asr.nn.transformer import MOST

FRAMES = 16  # of the fixed input by which a version of transformers is judged
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "expected": [],
}
Activation = Literal["gelu", "gelu_new", "gelu_fast", "gelu_python", "relu", "silu", "swish"]
Count = Field(gt=0, le=MOST["d_model"])
Layers = Field(gt=0, le=MOST["layers"])
Heads = Field(gt=0, le=MOST["heads"])
Width = Field(gt=0, le=MOST["ff"])


@dataclass(frozen=True)
class Dropouts:
    """Of a training: of sublayers and the input, of attention, within the feed-forward; and whether it masks."""

    hidden: float
    attention: float
    activation: float
    masks: bool


class FamilySettings(Settings):
    """What transformers makes an encoder of, by its names; and what it computed then, of a fixed input."""

    transformers: str  # its version
    expected: list[float] = Field(max_length=100)  # what `fingerprint` gave

    hidden_size: int  # D
    num_hidden_layers: int  # N

    @property
    @abstractmethod
    def strides(self) -> Strides:
        """How samples become frames."""

    @property
    def most_frames(self) -> int | None:
        """Frames that it takes at most; None for any number."""
        return None

    @property
    def most_samples(self) -> int | None:
        """Samples that it takes at most; None for any number."""
        most = self.most_frames
        return self.strides.frames(most + 1) - 1 if most else None

    @classmethod
    @abstractmethod
    def described(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Take the fields from config.json; what it doesn't state has transformers' own value.

        raises   UserError if it has something that can't be had, with the reason; the source is
                 named by the caller
        """

    @abstractmethod
    def waveforms(self, tree: dict[str, Any] | None) -> tuple[int, bool] | None:
        """Sample rate in Hz, and whether utterances are normalized, by the feature extractor's settings.

        tree     None if no file has them
        returns  None if only such a file would tell
        raises   ValueError if it has something else than what is computed here
        """

    def own(self, tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
        """The weights of the encoder by its own names, and the names of the others, of a source that has more."""
        return tensors, []

    def small(self) -> "FamilySettings":
        """The same kind, narrow and of two layers, for the fingerprint."""
        return self.model_copy(update=SMALL | self.small_parts)

    @property
    @abstractmethod
    def small_parts(self) -> dict[str, Any]:
        """The sizes of a small one that only this family has."""

    @abstractmethod
    def module(self, dropouts: Dropouts) -> Any:
        """Make transformers' module, with random weights."""

    def extractor(self) -> nn.Module | None:
        """What makes features of samples, if that isn't a part of transformers' module; it has no weights."""
        return None

    @abstractmethod
    def way(self, module: Any, extractor: nn.Module | None) -> "Way":
        """The way through its module."""

    def given(self) -> dict[str, Any]:
        """The fields that transformers' configuration takes."""
        tree = self.model_dump(exclude={"model_type", "transformers", "expected"})
        return {name: value for name, value in tree.items() if value is not None}


class Way(ABC):
    """The way through an encoder of transformers, on which neither padding nor company matters."""

    @property
    @abstractmethod
    def layers(self) -> nn.ModuleList:
        """The N layers."""

    @property
    def by_utterance(self) -> Iterable[nn.Module]:
        """Layers that `begin` may call once for each utterance."""
        return ()

    @abstractmethod
    def begin(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, S, 1), zeros beyond X_lens → H (B, T', D), H_lens (B,)"""

    @abstractmethod
    def through(self, H: Tensor, H_lens: Tensor, drawn: Sequence[bool]) -> list[Tensor]:
        """Go through the layers.

        H:       (B, T', D), which may be masked
        drawn:   N, the layers that aren't left out
        returns  what the layers read and give, N + 1 of (B, T', D), with the final norm
        """


def check_divisor(settings: FamilySettings, name: str) -> None:
    """Refuse a number that doesn't divide the width: of heads, of groups.

    raises   ValueError
    """
    if settings.hidden_size % getattr(settings, name):
        raise ValueError(
            f"{name}: got {getattr(settings, name)}, expected a divisor of hidden_size = {settings.hidden_size}"
        )


def filled(names: Iterable[str], tree: dict[str, Any]) -> dict[str, Any]:
    """What a config.json states of these names, and transformers' own values of what it doesn't."""
    given = {name: tree[name] for name in names if name in tree}
    config = configuration(**given)
    values = {name: getattr(config, name, None) for name in names} | given
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }


def configuration(model_type: str, **fields: Any) -> Any:
    """Make transformers' configuration."""
    return imports.transformers("transformers").AutoConfig.for_model(model_type, **fields)


def within(
    tensors: dict[str, Tensor], prefixes: Sequence[str]
) -> tuple[dict[str, Tensor], list[str]]:
    """What stands under the first of these prefixes that there is, without it, and the names of all else."""
    for prefix in prefixes:
        if found := {
            name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)
        }:
            return found, [name for name in tensors if not name.startswith(prefix)]
    return tensors, []


def expect(tree: dict[str, Any] | None, **values: Any) -> None:
    """Compare what the feature extractor's settings, if there are any, state with what is computed here.

    raises   ValueError that names the first other value
    """
    for name, value in values.items():
        if (got := (tree or {}).get(name, value)) != value:
            raise ValueError(f"{name}: got {got!r}, expected {value!r}")


def refuse(tree: dict[str, Any], reasons: dict[str, str]) -> None:
    """Refuse what of a family can't be had.

    raises   UserError with the reason
    """
    if wrong := [name for name in reasons if tree.get(name)]:
        raise UserError(f"{wrong[0]} is set: {reasons[wrong[0]]}; choose another model")
