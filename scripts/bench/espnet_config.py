"""ESPnet's configuration of the workload's model, beside its defaults."""

from scripts.bench import workload


def config() -> dict:
    """What Speech2Text and ASRTask take."""
    symbols = ["<blank>", "<unk>", *(f"t{n}" for n in range(workload.VOCABULARY - 3)), "<sos/eos>"]
    sizes = {"attention_heads": workload.HEADS, "linear_units": workload.FF}
    encoder = {
        "output_size": workload.D_MODEL,
        "num_blocks": workload.ENCODER_LAYERS,
        "input_layer": "conv2d",
    }
    dropouts = {"dropout_rate": workload.DROPOUT, "positional_dropout_rate": workload.DROPOUT}
    return {
        "token_list": symbols,
        "token_type": "bpe",
        "input_size": workload.MELS,  # given: features come in, no waveforms
        "normalize": None,
        "init": "xavier_uniform",
        "model_conf": {"ctc_weight": workload.CTC_WEIGHT, "lsm_weight": workload.SMOOTHING},
        "encoder": "transformer",
        "encoder_conf": {**sizes, **encoder, **dropouts},
        "decoder": "transformer",
        "decoder_conf": {**sizes, "num_blocks": workload.DECODER_LAYERS, **dropouts},
    }
