"""What a training reads of the source of a pretrained encoder, once: what it is, what it expects, its weights."""

import math
from pathlib import Path

from asr.errors import UserError, shorten
from asr.features.frontend import FrontendSettings
from asr.logging import logger
from asr.model_files import WEIGHTS, read_header
from asr.models import folder as folders
from asr.models.hybrid import HybridSettings
from asr.models.recognizer import Recognizer, RecognizerSettings
from asr.nn.encoders.families.family import FamilySettings
from asr.nn.encoders.families.log_mels import RATE
from asr.nn.encoders.pretrained import PretrainedEncoder, PretrainedSettings, read_architecture
from asr.nn.encoders.pretrained_source import PretrainedSource
from asr.tasks import pretrained_hub as hub
from asr.training.settings import DataSettings


def resolve(settings: RecognizerSettings, folder: str | None = None) -> RecognizerSettings:
    """Complete the settings of a pretrained encoder and of its features.

    folder   of the same model, which knows; else the source is asked
    raises   UserError if it can't be read or isn't supported, or the features don't suit it
    """
    features, model = settings.features, settings.model
    encoder = model.encoder
    if not isinstance(encoder, PretrainedSettings) or encoder.architecture:
        return settings
    if folder:
        saved = folders.read_settings(folder, RecognizerSettings, "hybrid")
        return settings.model_copy(update={"features": saved.features, "model": saved.model})
    source = hub.find(encoder.source, encoder.revision)
    architecture = read_architecture(source)
    features = read_features(features, source, architecture)
    hub.download_weights(source, architecture.model_type)
    facts = {"architecture": architecture, "revision": source.commit}
    encoder = encoder.model_copy(update=facts)
    tree = model.model_dump() | {"encoder": encoder.model_dump()}
    try:
        model = HybridSettings.model_validate(tree)  # layers are known by now
    except ValueError as error:
        raise UserError(f"model: {error.errors()[0]['msg']}") from None  # type: ignore[attr-defined]
    return settings.model_copy(update={"features": features, "model": model})


def read_features(
    features: FrontendSettings, source: PretrainedSource, architecture: FamilySettings
) -> FrontendSettings:
    """Complete the features by what the source expects of waveforms.

    raises   UserError if the settings state something else, or neither states it
    """
    if (waveform := features.waveform) is None:
        raise UserError(
            "features: got fbank, expected waveform, which a pretrained encoder reads: features: {waveform: "
            "{sample_rate: 16000}}"
        )
    name, settings = source.preprocessing()
    try:
        expected = architecture.waveforms(settings)
    except ValueError as error:
        raise UserError(f"{source.folder / name}: {error}") from None
    if expected is None:
        if waveform.normalize is None:
            raise UserError(
                f"{source.folder / name}: missing; give features.waveform.normalize, true if the encoder was "
                "trained on waveforms of mean 0 and variance 1, else false"
            )
        return features
    given = waveform.sample_rate, waveform.normalize
    for name, got, right in zip(("sample_rate", "normalize"), given, expected, strict=True):
        if got not in (right, None):
            raise UserError(
                f"features.waveform.{name}: got {got}, expected {right}, as {source.name} was trained"
            )
    return features.model_copy(
        update={"waveform": waveform.model_copy(update={"normalize": expected[1]})}
    )


def check_limit(model: HybridSettings, data: DataSettings) -> None:
    """Refuse a training with recordings that are longer than an encoder can take, or without CTC, by which they're cut.

    raises   UserError that names the setting and a possible one
    """
    encoder = model.encoder
    if not isinstance(encoder, PretrainedSettings) or not encoder.architecture:
        return
    if (samples := encoder.architecture.most_samples) is None:
        return
    most, slowest = samples / RATE, min(1.0, *data.speeds)
    edges = 2 * data.concatenate.max_edge if data.concatenate else 0.0
    if (longest := data.max_seconds / slowest + edges) > most:
        possible = math.floor(10 * (most - edges) * slowest) / 10
        with_edges = f" and data.concatenate.max_edge {edges / 2:g} at both ends" * bool(edges)
        raise UserError(
            f"data.max_seconds: got {data.max_seconds:g}, {longest:.1f} s at speed {slowest:g}{with_edges}, but the "
            f"encoder takes {most:.1f} s at most; set {possible:g} or less"
        )
    if model.ctc_weight == 0:
        raise UserError(
            f"model.ctc_weight: got 0, but the encoder takes {most:.1f} s at most, and longer recordings are cut by "
            "CTC's times; give CTC a share of the loss, as 0.3"
        )


def begin(model: Recognizer, init_from: str | None) -> None:
    """Take the weights of a pretrained encoder from its source, unless `init_from` has them."""
    encoder = model.model.encoder
    if not isinstance(encoder, PretrainedEncoder):
        return
    if init_from:
        names = read_header(Path(init_from) / WEIGHTS).shapes
        if any(name.startswith("model.encoder.pretrained.") for name in names):
            return
    source = hub.find(encoder.settings.source, encoder.settings.revision)
    hub.download_weights(source, encoder.pretrained.config.model_type)
    unused = encoder.load_source(source)
    rest = f"; not used of it: {shorten(unused)}" * bool(unused)
    logger.info(f"encoder: the weights of {encoder.settings.source}{rest}")
