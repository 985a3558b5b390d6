"""BPE dropout: the same word in other pieces each time it is trained on."""

from collections.abc import Callable, Mapping
from itertools import pairwise

from asr.text.normalise import normalise

WORD = "▁"  # what a word begins with, as sentencepiece writes it


class BPEDropout:
    """Byte-pair encoding that leaves out merges by chance (Provilkov, Emelianenko and Voita 2020, algorithm 1).

    A word begins as its characters. In each step every possible merge of two neighbours is left out with probability
    p; of the others the one of the highest score is made, the leftmost of equal ones. Where none is left, that's it.
    So p = 0 is the plain encoding, and p = 1 the characters. sentencepiece's own sampling can't be used: it draws from
    a generator of the thread, which no call can seed.

    ids, scores   of each piece; the learnt first has the highest score
    """

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float], p: float):
        self._ids, self._scores, self._p = ids, scores, p

    def encode(self, text: str, draw: Callable[[], float]) -> list[int]:
        """Turn text into ids.

        draw     gives the next number in [0, 1): a random.Random's `random`
        returns  ids; 0 for a character that is no piece by itself, as an unknown one
        """
        words = normalise(text).split()
        return [self._ids.get(piece, 0) for word in words for piece in self._pieces(WORD + word, draw)]

    def _pieces(self, word: str, draw: Callable[[], float]) -> list[str]:
        pieces = list(word)
        while merges := list(self._merges(pieces, draw)):
            n = -max(merges)[1]
            pieces[n : n + 2] = [pieces[n] + pieces[n + 1]]
        return pieces

    def _merges(self, pieces: list[str], draw: Callable[[], float]):
        """Yield (score, -place) of the merges that aren't left out."""
        for n, (left, right) in enumerate(pairwise(pieces)):
            score = self._scores.get(left + right)
            if score is not None and draw() >= self._p:
                yield score, -n
