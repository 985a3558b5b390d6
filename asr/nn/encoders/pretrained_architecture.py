"""What a pretrained encoder is made of, by transformers' names: the description that our model folders keep."""

from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from asr import imports
from asr.config import Settings
from asr.errors import UserError
from asr.nn.encoders import pretrained_source as sources
from asr.nn.encoders.pretrained_source import PretrainedSource
from asr.nn.subsampling import Strides
from asr.nn.transformer import MOST

Activation = Literal["gelu", "gelu_new", "gelu_fast", "gelu_python", "relu", "silu", "swish"]
Count = Field(gt=0, le=MOST["d_model"])
# what of transformers' families can't be had, and why
REFUSED = {
    "add_adapter": "its adapter shortens time with padding, which isn't supported",
    "adapter_attn_dim": "its adapters, one per language, aren't supported",
    "conv_pos_batch_norm": "statistics of a batch would make a result depend on its company",
}
FEATURES = ("wav2vec2-bert", "whisper", "parakeet_encoder", "parakeet_ctc")  # what others read
MOST_SAMPLES = 1 << 18  # of FRAMES frames; usually 5200
FRAMES = 16  # of the fixed input by which a version of transformers is judged


class ArchitectureSettings(Settings):
    """What transformers makes the encoder of, by its names; and what it computed then, of a fixed input."""

    model_type: Literal["wav2vec2", "hubert", "wavlm", "data2vec-audio"]
    hidden_size: int = Count
    num_hidden_layers: int = Field(gt=0, le=MOST["layers"])
    num_attention_heads: int = Field(gt=0, le=MOST["heads"])
    intermediate_size: int = Field(gt=0, le=MOST["ff"])
    hidden_act: Activation
    layer_norm_eps: float = Field(gt=0, le=1)
    feat_extract_norm: Literal["group", "layer"]
    feat_extract_activation: Activation
    conv_dim: list[int] = Field(min_length=1, max_length=32)
    conv_kernel: list[int]
    conv_stride: list[int]
    conv_bias: bool
    num_conv_pos_embeddings: int = Count
    num_conv_pos_embedding_groups: int = Count
    do_stable_layer_norm: bool = False
    feat_proj_layer_norm: bool | None = None  # of HuBERT
    num_buckets: int | None = Field(None, gt=1, le=MOST["d_model"])  # of WavLM
    max_bucket_distance: int | None = Field(None, gt=1, le=MOST["d_model"])  # of WavLM
    conv_pos_kernel_size: int | None = Field(None, gt=0, le=MOST["d_model"])  # of data2vec
    transformers: str  # its version
    expected: list[float] = Field(max_length=100)  # what `fingerprint` gave

    @model_validator(mode="after")
    def _sizes_fit(self):
        sizes = self.conv_dim, self.conv_kernel, self.conv_stride
        possible = all(0 < n <= MOST["d_model"] for part in sizes for n in part)
        if (
            len({*map(len, sizes)}) > 1
            or not possible
            or self.strides.frames(FRAMES) > MOST_SAMPLES
        ):
            raise ValueError(
                f"conv_dim: got {sizes} for channels, kernels and strides, expected as many positive numbers of each, "
                f"and {FRAMES} frames of {MOST_SAMPLES} samples or less"
            )
        if self.model_type == "data2vec-audio":
            if self.do_stable_layer_norm or self.feat_extract_norm == "group":
                raise ValueError(
                    "model_type: got data2vec-audio with do_stable_layer_norm or feat_extract_norm: group, which it "
                    "doesn't have"
                )
            if self.conv_pos_kernel_size is None or self.num_conv_pos_embeddings > MOST["layers"]:
                got = self.conv_pos_kernel_size, self.num_conv_pos_embeddings
                raise ValueError(
                    f"conv_pos_kernel_size: got {got} for it and num_conv_pos_embeddings, expected a kernel, and "
                    f"{MOST['layers']} convolutions or less"
                )
        for name in ("num_attention_heads", "num_conv_pos_embedding_groups"):
            if self.hidden_size % getattr(self, name):
                raise ValueError(
                    f"{name}: got {getattr(self, name)}, expected a divisor of hidden_size = {self.hidden_size}"
                )
        return self

    @property
    def strides(self) -> Strides:
        """How the convolutions shorten time."""
        return Strides(list(zip(self.conv_kernel, self.conv_stride, strict=True)))

    def config(self, **more: Any) -> Any:
        """Make transformers' configuration."""
        given = self.model_dump(exclude={"model_type", "transformers", "expected"})
        given = {name: value for name, value in given.items() if value is not None}
        how = "eager" if self.model_type == "wavlm" else "sdpa"
        auto = imports.transformers("transformers").AutoConfig
        return auto.for_model(self.model_type, **given, attn_implementation=how, **more)


def read(source: PretrainedSource) -> ArchitectureSettings:
    """Read what transformers makes the encoder of a source of; nothing is expected of it yet.

    raises   UserError if it is none that is supported, with the reason
    """
    tree, where = source.description(), source.folder / sources.DESCRIPTION
    family, known = tree.get("model_type"), ArchitectureSettings.model_fields["model_type"]
    families = get_args(known.annotation)
    if family not in families:
        why = "reads features, not waveforms" if family in FEATURES else "isn't supported"
        raise UserError(f"{where}: model_type {family!r} {why}; expected {', '.join(families)}")
    if wrong := [name for name in REFUSED if tree.get(name)]:
        raise UserError(f"{where}: {wrong[0]} is set: {REFUSED[wrong[0]]}; choose another model")
    library = imports.transformers("transformers")
    names = [name for name in ArchitectureSettings.model_fields if name in tree]
    try:
        config = library.AutoConfig.for_model(**{name: tree[name] for name in names})
        found: dict[str, Any] = {"feat_extract_norm": "layer"} if family == "data2vec-audio" else {}
        found |= {
            name: list(value) if isinstance(value, tuple) else value
            for name in ArchitectureSettings.model_fields
            if (value := getattr(config, name, None)) is not None
        }
        facts = {"transformers": library.__version__, "expected": []}
        return ArchitectureSettings.model_validate(found | facts)
    except Exception as error:  # noqa: BLE001 - pydantic's, and transformers' own
        raise UserError(f"{where}: doesn't describe an encoder ({brief(error)})") from None


def brief(error: Exception) -> str:
    """Put an error into one line."""
    return "; ".join(str(error).split("\n")[:3])
