"""Give the weights of a model folder of version 0.1 the names that version 0.2 knows them by; their values stay.

python -m scripts.rename_weights exp/mini/model
"""

import argparse
import re
from pathlib import Path

from asr.models.folder import WEIGHTS
from asr.models.weights import Weights, read, write

RENAMED = {
    r"^model\.(embedding|layers|norm|out)\.": r"model.decoder.\1.",  # of a language model
    r"\.first\.": ".ff1.",
    r"\.second\.": ".ff2.",
    r"\.feedforward\.": ".ff.",
    r"\.around_first\.norm\.": ".norm_ff1.",
    r"\.around_second\.norm\.": ".norm_ff2.",
    r"\.around_feedforward\.norm\.": ".norm_ff.",
    r"\.around_(\w+)\.norm\.": r".norm_\1.",
    r"\.attention_norm\.": ".norm_attention.",
    r"\.local_norm\.": ".norm_cgmlp.",
    r"\.local\.": ".cgmlp.",
    r"\.mix\.": ".merge_convolution.",
}


def renamed(name: str) -> str:
    """The name of a tensor in version 0.2.

    >>> renamed("model.encoder.layers.3.around_first.norm.weight"), renamed("model.layers.0.feedforward.inner.bias")
    ('model.encoder.layers.3.norm_ff1.weight', 'model.decoder.layers.0.ff.inner.bias')
    """
    for old, new in RENAMED.items():
        name = re.sub(old, new, name)
    return name


def main() -> None:
    """Rename."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    path = parser.parse_args().folder / WEIGHTS
    weights = read(path)
    write(
        Weights({renamed(name): tensor for name, tensor in weights.tensors.items()}, weights.bound),
        path,
    )


if __name__ == "__main__":
    main()
