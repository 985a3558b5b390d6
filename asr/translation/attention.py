"""Where a translator looks: its decoder's attention to the source, by layer and head.

U target tokens, S source tokens, H heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from asr.data.texts import Text
from asr.errors import UserError
from asr.models.translator import Translator
from asr.transcription import plots
from asr.transcription.options import SearchOptions
from asr.translation.translate import encode, tokens, translate

LONGEST = 100  # tokens of either side that can be read in a plot


@dataclass(frozen=True)
class Attended:
    """What a translator makes of a line.

    text            the translation
    source, target  tokens, as text: (S + 1,) and (U + 1,), the ends included
    attention       (layers, H, U + 1, S + 1), rows that sum to 1
    """

    text: str
    source: Sequence[str]
    target: Sequence[str]
    attention: np.ndarray


@torch.no_grad()
def observe(translator: Translator, text: Text, options: SearchOptions) -> Attended:
    """Translate a line, and keep where the decoder looked given the translation.

    raises   UserError if it is empty, or either side has more than LONGEST tokens
    """
    if not tokens(translator, text):
        raise UserError(
            f"{text.where}: empty, or without a character that the tokenizer knows; expected a sentence to draw"
        )
    [found] = translate(translator, [text], options)
    [(_, H, H_lens)] = encode(translator, [text], "fp32")  # H (1, S + 1, D)
    target = found.nbest[0].tokens
    if max(len(target), H.size(1)) > LONGEST:
        raise UserError(
            f"{text.where}: got {H.size(1)} and {len(target)} tokens, expected {LONGEST} or fewer; take a shorter one"
        )
    Y = torch.tensor([target], dtype=torch.long, device=H.device)
    decoded = translator.model.decode(
        H, H_lens, Y, torch.tensor([len(target)], device=H.device), attention=True
    )
    names, symbols = translator.source_tokenizer.symbols(), translator.tokenizer.symbols()
    source = tokens(translator, text)
    return Attended(
        found.text,
        [*(names[n] for n in source), plots.END],
        [*(symbols[n] for n in target), plots.END],
        torch.cat(list(decoded.cross)).float().cpu().numpy(),
    )


def draw(seen: Attended, title: str) -> Any:
    """Draw it, source × target, a panel per layer (rows) and head (columns); matplotlib's Figure.

    raises   UserError if matplotlib can't be imported
    """
    return plots.heads(seen.attention, seen.target, title, columns=seen.source)
