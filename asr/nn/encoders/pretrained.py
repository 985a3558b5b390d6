"""An encoder that others have trained: wav2vec 2.0, HuBERT, WavLM, data2vec, XLS-R, w2v-BERT 2, Whisper's, Parakeet's.

Its parts are transformers' own; the way through them is ours, so that neither padding nor company matters.

B batch, S samples, T' frames of the family, T'' frames of the output, D model width, N layers.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from asr import imports
from asr.config import Settings
from asr.errors import UserError, shorten
from asr.nn.encoder import WHOLE, EncoderOutput
from asr.nn.encoders import pretrained_source as sources
from asr.nn.encoders.families import read as families
from asr.nn.encoders.families.family import FRAMES, Dropouts, FamilySettings, Way
from asr.nn.encoders.families.read import AnyFamily
from asr.nn.encoders.pretrained_source import PretrainedSource
from asr.nn.layers import layerdrop_mask
from asr.nn.lora import LoRASettings
from asr.nn.subsampling import Strides
from asr.nn.transformer import MOST
from asr.ops import span_mask, zero_padding
from asr.seeding import another, uniforms, utterance_seed

TOLERANCE = 1e-5  # of what is computed in float64 and written with six decimals
ADAPTER = {1: [], 2: [(3, 2)]}  # stride → (kernel, stride) of the adapter's convolution
MISSING = {"masked_spec_embed"}  # what a source may lack: then it is learned from a random vector


class LatentMaskSettings(Settings):
    """Masks of the encoder's input in training, of fixed width each, which may overlap."""

    time_ratio: float = Field(0.1, ge=0, lt=1)  # of an utterance's frames, if none overlapped
    time_width: int = Field(10, gt=0, le=1000)  # frames, of 20 ms usually, of Parakeet 80
    feature_ratio: float = Field(0.0, ge=0, lt=1)  # of the D features, likewise
    feature_width: int = Field(64, gt=0, le=MOST["d_model"])


class PretrainedSettings(Settings):
    """An encoder of transformers, whose weights a training begins with; what it adds is for the training."""

    kind: Literal["pretrained"]
    source: str  # folder, or owner/name on the Hugging Face Hub; read by the first training alone
    revision: str | None = None  # on the hub; the training writes the commit here
    dropout: float = Field(0.1, ge=0, lt=1)  # of sublayers and of the input
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    activation_dropout: float = Field(0.1, ge=0, lt=1)  # within the feed-forward
    layer_dropout: float = Field(0.0, ge=0, lt=1)
    weighted_layers: bool = False  # H is a learned mean of all layers, not the last one
    stride: Literal[1, 2] = 1  # 2: an adapter, which is learned, makes 25 frames a second of 50
    freeze_extractor: bool = False  # the convolutions that read samples stay; others have none
    mask: LatentMaskSettings | None = None
    lora: LoRASettings | None = None  # the source's weights stay, and low-rank matrices are learned
    architecture: AnyFamily | None = None  # read from the source, if absent

    chunk: ClassVar[None] = None  # a frame sees the whole utterance

    @property
    def layers(self) -> int:
        """N, as far as it is known."""
        return self.architecture.num_hidden_layers if self.architecture else MOST["layers"] + 1

    @property
    def d_model(self) -> int:
        """D, as far as it is known."""
        return self.architecture.hidden_size if self.architecture else 0

    @property
    def subsampling(self) -> int:
        """Samples from one frame to the next."""
        return self.strides(self.architecture).factor if self.architecture else 0

    def strides(self, architecture: FamilySettings) -> Strides:
        """How the family and the adapter shorten time."""
        return Strides([*architecture.strides.stages, *ADAPTER[self.stride]])

    def find(self) -> PretrainedSource:
        """Find the source; see `sources.find`."""
        return sources.find(self.source, self.revision)

    def build(self, features: int) -> "PretrainedEncoder":
        """Make the encoder, for F = 1.

        raises   UserError if transformers computes something else than it did; ValueError if the
                 features aren't waveforms, or the source wasn't read
        """
        if features != 1:
            raise ValueError(
                f"got {features} features a frame, expected waveforms, which a pretrained encoder reads; give "
                "features: {waveform: {sample_rate: 16000}} and no fbank"
            )
        if self.architecture is None:
            raise ValueError("encoder.architecture: missing; asr-train reads it from the source")
        return PretrainedEncoder(self, self.architecture)


class PretrainedEncoder(nn.Module):
    """Waveforms → frames of width D, masked in training → N layers → adapter.

    X (B, S, 1) → H (B, T'', D); without an adapter T'' = T'.
    """

    chunk = None

    def __init__(self, settings: PretrainedSettings, architecture: FamilySettings):
        super().__init__()
        s, a = settings, architecture
        self.settings, self.architecture, self.d_model = s, a, a.hidden_size
        self.layer_dropout, self.subsampling = s.layer_dropout, s.strides(a)
        dropouts = Dropouts(
            s.dropout, s.attention_dropout, s.activation_dropout, masks=s.mask is not None
        )
        self.pretrained: Any = a.module(dropouts)
        self.extractor = a.extractor()
        if s.freeze_extractor and hasattr(self.pretrained, "feature_extractor"):
            self.pretrained.feature_extractor.requires_grad_(False)
        if s.lora:
            for name, parameter in self.pretrained.named_parameters():
                parameter.requires_grad_(name in MISSING)
            s.lora.adapt(self.layers)
        self.layer_scores: nn.Parameter | None = None
        if s.weighted_layers:
            self.layer_scores = nn.Parameter(torch.zeros(a.num_hidden_layers + 1))
        self.adapter = Adapter(a.hidden_size) if s.stride == 2 else None
        if a.expected and not any(p.is_meta for p in self.pretrained.parameters()):
            check_fingerprint(a)

    @property
    def way(self) -> Way:
        """The family's way through its module."""
        return self.architecture.way(self.pretrained, self.extractor)

    @property
    def most_samples(self) -> int | None:
        """Samples that it takes at most; None for any number."""
        return self.architecture.most_samples

    @property
    def layers(self) -> nn.ModuleList:
        """The N layers."""
        return self.way.layers

    @property
    def by_utterance(self) -> Iterable[nn.Module]:
        """Layers that may be called once for each utterance, rather than for a batch."""
        return self.way.by_utterance

    @property
    def transferred(self) -> Iterator[nn.Parameter]:
        """What the source has weights for; the rest is new."""
        return self.pretrained.parameters()

    def forward(
        self,
        X: Tensor,
        X_lens: Tensor,
        layers: Sequence[int] = (),
        chunk: int | Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode a padded batch.

        X:          (B, S, 1); what stands beyond X_lens is never read
        X_lens:     (B,) int, samples
        layers:     numbers of layers, from 1, whose H is wanted, too, with the final norm, and adapted
        chunk:      none, or `WHOLE`
        seeds:      (B,) int64, which in training draw the masks
        """
        if chunk not in (None, WHOLE):
            raise ValueError("chunk: got one, expected none: a pretrained encoder has no chunks")
        return self._output(self._hidden(X, X_lens, seeds), X_lens, layers)

    def frozen(
        self,
        X: Tensor,
        X_lens: Tensor,
        layers: Sequence[int] = (),
        seeds: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode as `forward` does, without a gradient for the weights of the source."""
        with torch.no_grad():
            outputs = self._hidden(X, X_lens, seeds)
        return self._output(outputs, X_lens, layers)

    def _hidden(self, X: Tensor, X_lens: Tensor, seeds: Tensor | None) -> list[Tensor]:
        """X (B, S, 1) → what the layers read and give, N + 1 of (B, T', D), with the final norm."""
        self._check(X_lens)
        way = self.way
        H, H_lens = way.begin(zero_padding(X, X_lens), X_lens)  # (B, T', D)
        if self.training and seeds is not None and self.settings.mask:
            H = self._mask(H, H_lens, self.settings.mask, seeds)  # (B, T', D)
        return way.through(H, H_lens, layerdrop_mask(way.layers, self.layer_dropout, self.training))

    def _check(self, X_lens: Tensor) -> None:
        """Refuse utterances that are too short for a frame, or longer than the encoder has positions."""
        if X_lens.device.type != "cpu":  # a GPU would be waited for
            return
        shortest, longest = self.subsampling.shortest, self.most_samples
        for n, wrong, expected in (
            (int(X_lens.argmin()), X_lens.min() < shortest, f"{shortest} or more"),
            (int(X_lens.argmax()), longest and X_lens.max() > longest, f"{longest} or less"),
        ):
            if wrong:
                raise ValueError(
                    f"utterance {n} of the batch: got {int(X_lens[n])} samples, expected {expected}"
                )

    def _output(
        self, outputs: list[Tensor], X_lens: Tensor, layers: Sequence[int]
    ) -> EncoderOutput:
        """Take the last of the layers' outputs, or their mean, and shorten time: N + 1 of (B, T', D) → (B, T'', D)."""
        H = outputs[-1]
        if self.layer_scores is not None:
            shares = self.layer_scores.softmax(0)  # (N + 1,)
            H = sum(share * output for share, output in zip(shares, outputs, strict=True))
        adapt = self.adapter or nn.Identity()
        inner = [adapt(outputs[n]) for n in layers]  # (B, T'', D)
        return EncoderOutput(adapt(H), self.subsampling.lengths(X_lens), inner)

    def _mask(self, H: Tensor, H_lens: Tensor, s: LatentMaskSettings, seeds: Tensor) -> Tensor:
        """Put the learned vector, if there is one, in the place of spans of time, and zeros in that of features."""
        bins = torch.full_like(H_lens, self.d_model)
        time = fixed_spans(seeds, H_lens, s.time_ratio, s.time_width, H.size(1)).unsqueeze(2)
        bands = fixed_spans(another(seeds), bins, s.feature_ratio, s.feature_width, self.d_model)
        vector = getattr(self.pretrained, "masked_spec_embed", H.new_zeros(()))
        H = torch.where(time, vector.to(H.dtype), H)  # (B, T', D)
        return H.masked_fill(bands.unsqueeze(1), 0)

    @torch.no_grad()
    def load_source(self, source: PretrainedSource | None = None) -> list[str]:
        """Take the weights of the source, which is found by the settings unless given.

        returns  names of its tensors that an encoder doesn't need, as those of another task's head
        raises   UserError if it lacks some, or has them in another shape
        """
        source = source or self.settings.find()
        tensors, others = self.architecture.own(source.tensors())
        with quiet():
            loaded, info = type(self.pretrained).from_pretrained(
                None,
                config=self.pretrained.config,
                state_dict=tensors,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        wrong = {*info["missing_keys"]} - MISSING | {str(key[0]) for key in info["mismatched_keys"]}
        if wrong:
            raise UserError(
                f"{source.folder}: its weights aren't those of its {sources.DESCRIPTION}: {shorten(sorted(wrong))} "
                "missing or of another shape; fetch it again"
            )
        own = self.pretrained.state_dict()  # with LoRA's matrices
        taken = {name: x for name, x in loaded.state_dict().items() if name in own}
        self.pretrained.load_state_dict({**own, **taken})
        unused = {*info["unexpected_keys"], *others}
        return sorted(name for name in unused if name.rpartition(".")[2] not in MISSING)


class Adapter(nn.Module):
    """Halve the frames: LayerNorm(GLU(conv(H))), a convolution of D to 2D channels, kernel 3 and stride 2.

    It is one layer of the length adapter of Li et al. 2021 (arXiv 2010.12829), as fairseq has it
    (Conv1dAdaptor); transformers' adapter of wav2vec 2.0 lacks the norm. Both pad with zeros; here
    nothing is padded, so that a frame depends on real ones only.
    """

    def __init__(self, d_model: int):
        super().__init__()
        [(kernel, stride)] = ADAPTER[2]
        self.conv = nn.Conv1d(d_model, 2 * d_model, kernel, stride)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, H: Tensor) -> Tensor:
        """H (B, T', D) → (B, T'', D), T'' = (T' - 1) // 2"""
        H = F.glu(self.conv(H.transpose(1, 2)), dim=1)  # (B, D, T'')
        return self.norm(H.transpose(1, 2))  # (B, T'', D)


def fixed_spans(seeds: Tensor, lens: Tensor, ratio: float, width: int, size: int) -> Tensor:
    """Draw the union of spans of one width, so many that without overlaps they were a share of the length.

    seeds:   (B,) int64; lens: (B,) int, the spans lie within 0..lens, and shorter rows have none
    ratio:   the share; what is left of a span is one at random
    returns  (B, size) bool, True within a span
    """
    most = int(ratio * size / width) + 1  # M
    u = uniforms(seeds, most + 1)  # (B, 1 + M)
    count = (ratio * lens / width + u[:, 0]).long().masked_fill(lens < width, 0)  # (B,)
    start = (u[:, 1:] * (lens - width + 1).clamp(min=1).unsqueeze(1)).long()  # (B, M)
    drawn = torch.arange(most, device=seeds.device) < count.unsqueeze(1)  # (B, M)
    return span_mask(start, width * drawn, size)


def read_architecture(source: PretrainedSource) -> Any:
    """Read what transformers makes an encoder of, and compute what it gives of the fixed input.

    raises   UserError if it is none that is supported, with the reason
    """
    read = families.read(source)
    return read.model_copy(update={"expected": fingerprint(read)})


def fingerprint(architecture: FamilySettings) -> list[float]:
    """Compute, in float64, what a small encoder of the same kind gives of fixed weights and a fixed input."""
    small = architecture.small()
    tree = {"kind": "pretrained", "source": "", "architecture": small}
    settings = PretrainedSettings.model_validate(tree)
    encoder = PretrainedEncoder(settings, small).double().eval()

    def values(name: str, n: int) -> Tensor:
        seed = torch.tensor([utterance_seed("fingerprint", name)])
        return 2 * uniforms(seed, n)[0] - 1

    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            scale = (parameter.numel() / len(parameter)) ** -0.5 if parameter.dim() > 1 else 0.5
            parameter.copy_(scale * values(name, parameter.numel()).view_as(parameter))
        S = encoder.subsampling.frames(FRAMES)
        H = encoder(values("input", S).view(1, S, 1), torch.tensor([S])).H  # (1, T', D)
    return [round(H[0, t, t % H.size(2)].item(), 6) for t in range(FRAMES)]


def check_fingerprint(architecture: FamilySettings) -> None:
    """Refuse a version of transformers that computes something else than the one of the first training."""
    got, expected = fingerprint(architecture), architecture.expected
    if len(got) != len(expected) or any(
        abs(a - b) > TOLERANCE for a, b in zip(got, expected, strict=True)
    ):
        now, then = imports.transformers("transformers").__version__, architecture.transformers
        raise UserError(
            f"model.encoder.architecture: transformers {now} computes another encoder than {then} did, with which the "
            f"model was trained: {got[:2]} ..., expected {expected[:2]} ...; pip install transformers=={then}"
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within it, transformers reports nothing and shows no bars."""
    log = imports.transformers("transformers.utils.logging")
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
