"""SpeechBrain's modules of the workload's sizes, put together as its LibriSpeech Transformer recipe does.

But for one choice: both convolutions have as many channels as ours instead of 64 and 32.
"""

from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
from speechbrain.lobes.models.transformer.TransformerASR import TransformerASR
from speechbrain.nnet.linear import Linear
from torch import nn

from scripts.bench import workload

BLANK, BOS, EOS = 0, 1, workload.VOCABULARY - 1


def front() -> ConvolutionFrontEnd:
    """The convolutions that subsample by 4."""
    return ConvolutionFrontEnd(
        input_shape=(8, 10, workload.MELS),
        num_blocks=2,
        num_layers_per_block=1,
        out_channels=(workload.CHANNELS, workload.CHANNELS),
        kernel_sizes=(3, 3),
        strides=(2, 2),
        residuals=(False, False),
    )


def transformer() -> TransformerASR:
    """Encoder and decoder."""
    return TransformerASR(
        tgt_vocab=workload.VOCABULARY,
        input_size=workload.CHANNELS * workload.MELS // 4,
        d_model=workload.D_MODEL,
        nhead=workload.HEADS,
        num_encoder_layers=workload.ENCODER_LAYERS,
        num_decoder_layers=workload.DECODER_LAYERS,
        d_ffn=workload.FF,
        dropout=workload.DROPOUT,
        activation=nn.ReLU,
        normalize_before=True,
        causal=False,
    )


def outputs() -> tuple[Linear, Linear]:
    """The output layers of CTC and of the decoder."""
    return tuple(
        Linear(input_size=workload.D_MODEL, n_neurons=workload.VOCABULARY) for _ in range(2)
    )
