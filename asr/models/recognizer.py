"""A recogniser: frontend, model and tokenizer in one; and the folder that holds it.

The folder: `config.yaml` (the full experiment), `model.safetensors` (all weights, the CMVN statistics among them) and
the tokenizer's files. Loading one runs no code of its maker.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from asr.config import Settings, check
from asr.errors import UserError, shorten
from asr.features.frontend import Frontend, FrontendSettings
from asr.files import make_folder, replacing, write_text
from asr.models.hybrid import Hybrid, HybridSettings
from asr.models.loss import Loss
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer
from asr.tree import read_tree

CONFIG, WEIGHTS = "config.yaml", "model.safetensors"


class RecognizerSettings(Settings):
    """What identifies a model: its features and its sizes."""

    features: FrontendSettings
    model: HybridSettings


class Recognizer(nn.Module):
    """Waveforms in: features, encoder, CTC and decoder behind one door."""

    def __init__(self, features: FrontendSettings, model: HybridSettings, tokenizer: Tokenizer):
        super().__init__()
        self.frontend = Frontend(features)
        try:
            self.model = Hybrid(model, self.frontend.fbank.mels, tokenizer.vocabulary)
        except ValueError as error:  # sizes possible each for itself, but not together
            raise UserError(f"features.fbank and model: {error}") from None
        self.tokenizer = tokenizer

    @property
    def sample_rate(self) -> int:
        """Of the waveforms, Hz."""
        return self.frontend.fbank.sample_rate

    def loss(
        self,
        waveforms: Tensor,
        wave_lens: Tensor,
        Y: Tensor,
        Y_lens: Tensor,
        seeds: Tensor | None = None,
        masked: bool = True,
    ) -> Loss:
        """Loss of a padded batch: waveforms (B, S), labels Y (B, U) padded with -1.

        seeds (B,) augment it in training mode, by SpecAugment too if masked
        """
        X, X_lens = self.frontend(waveforms, wave_lens, seeds, masked)  # (B, T, F)
        return self.model.loss(X, X_lens, Y, Y_lens)

    def encode(self, waveforms: Tensor, wave_lens: Tensor) -> tuple[Tensor, Tensor]:
        """Waveforms (B, S) → H (B, T', D), H_lens (B,)"""
        return self.model.encode(*self.frontend(waveforms, wave_lens))

    def encoder_frames(self, samples: int) -> int:
        """Encoder frames T' of a waveform of so many samples; 0 if it is too short."""
        return self.model.encoder.subsampling.lengths(max(0, self.frontend.fbank.lengths(samples)))

    @property
    def shortest_samples(self) -> int:
        """Samples of the shortest waveform that makes one encoder frame."""
        fbank = self.frontend.fbank
        return (self.model.encoder.subsampling.shortest - 1) * fbank.shift_samples + fbank.frame_samples

    def save(self, folder: str | Path, config: str) -> None:
        """Write the model folder; `config` is the YAML text of the full experiment."""
        self.describe(folder, config)
        save_weights(self, Path(folder) / WEIGHTS)

    def describe(self, folder: str | Path, config: str) -> None:
        """Write all of the model folder but the weights."""
        folder = make_folder(folder)
        write_text(folder / CONFIG, config)
        self.tokenizer.save(folder)


def save_weights(module: nn.Module, path: Path) -> None:
    """Write a module's weights as safetensors, shared tensors once."""
    seen, weights = set(), {}
    for name, tensor in module.state_dict().items():
        if tensor.data_ptr() not in seen:
            weights[name] = tensor.contiguous()
            seen.add(tensor.data_ptr())
    with replacing(path) as temporary:
        save_file(weights, temporary)


def load_weights(module: nn.Module, path: Path) -> None:
    """Read a module's weights from safetensors.

    raises   UserError if the file is missing, damaged, or of another model; names what differs
    """
    try:
        weights = load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path}: missing; a model folder needs it, copy the folder again") from None
    except Exception as error:  # noqa: BLE001 - safetensors raises its own and the system's errors
        raise UserError(f"{path}: damaged ({error}); copy the model folder again") from None
    expected = {name: tensor.shape for name, tensor in module.state_dict().items()}
    wrong = [n for n, w in weights.items() if n not in expected or w.shape != expected[n]]
    shared = {tensor.data_ptr() for name, tensor in module.state_dict().items() if name in weights}
    wrong += [n for n, t in module.state_dict().items() if n not in weights and t.data_ptr() not in shared]
    if wrong:
        raise UserError(f"{path}: doesn't fit the model that {CONFIG} describes: {shorten(wrong)}")
    module.load_state_dict(weights, strict=False)


def load(folder: str | Path, device: torch.device | str = "cpu") -> Recognizer:
    """Load a model folder, in evaluation mode.

    raises   UserError if a file is missing or damaged; names it
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such model folder; asr-train makes one")
    if not (folder / CONFIG).exists():
        raise UserError(
            f"{folder / CONFIG}: missing; is {folder} a model folder of asr-train whose training has begun?"
        )
    tree, source = read_tree(folder / CONFIG)
    settings = check(RecognizerSettings, {k: tree[k] for k in ("features", "model") if k in tree}, source)
    recognizer = Recognizer(settings.features, settings.model, tokenizers.load(folder))
    load_weights(recognizer, folder / WEIGHTS)
    return recognizer.to(device).eval()
