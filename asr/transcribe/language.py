"""What a search knows beside the recogniser: language models and hotwords, from files to scorers."""

import os

import torch

from asr.errors import UserError
from asr.models import lm
from asr.search import hotwords, ngram
from asr.search.network import NetworkScorer
from asr.search.scorer import Scorer
from asr.text.tokenizer import Tokenizer


def load_lm(path: str, tokenizer: Tokenizer, device: torch.device) -> Scorer:
    """Load a language model over the labels of a recogniser's tokenizer.

    path     folder of a Transformer language model, or ARPA file (.gz too) of an n-gram model over tokens
    raises   UserError if it can't be read, or is a model of other tokens
    """
    if not os.path.isdir(path):
        return ngram.NGramScorer(ngram.load(path, tokenizer.symbols()).to(device))
    model = lm.load(path, device)
    if model.tokenizer.symbols() != tokenizer.symbols():
        raise UserError(
            f"{path}: a language model of other tokens than the recogniser's ({model.tokenizer.vocabulary} and "
            f"{tokenizer.vocabulary} ids); train it with the recogniser's tokenizer"
        )
    return NetworkScorer(model.model, model.model.sos_eos)


def load_hotwords(path: str, tokenizer: Tokenizer, device: torch.device) -> Scorer:
    """Load words and phrases, a line each, perhaps with a tab and a factor; 1 a token of each unless given.

    raises   UserError if the file can't be read, or a line can't be written in the tokenizer's labels
    """
    return hotwords.HotwordScorer(hotwords.load(path, tokenizer.encode, tokenizer.symbols(), 1.0).to(device))
