"""BPE dropout: split a word into different pieces each time it is used in training."""

from collections.abc import Callable, Mapping
from itertools import pairwise

from asr.text.normalize import normalize

WORD = "▁"  # sentencepiece's mark at the start of a word


class BPEDropout:
    """Byte-pair encoding that leaves out merges at random (Provilkov, Emelianenko and Voita 2020, algorithm 1).

    A word begins as its characters. In each step every possible merge of two neighbors is left out
    with probability p. Of the others, the one with the highest score is made, the leftmost of equal
    ones, until none is left. So p = 0 is the plain encoding, and p = 1 the characters.
    sentencepiece's own sampling can't be used: it draws from a generator of the thread, which no
    call can seed.

    ids, scores   of each piece; the piece learned first has the highest score
    """

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float], p: float):
        self._ids, self._scores, self._p = ids, scores, p

    def encode(self, text: str, draw: Callable[[], float]) -> list[int]:
        """Turn text into ids.

        draw     returns the next number in [0, 1), such as the `random` of a random.Random
        returns  ids; 0 for a character that isn't a piece, like an unknown one
        """
        words = normalize(text).split()
        return [
            self._ids.get(piece, 0) for word in words for piece in self._pieces(WORD + word, draw)
        ]

    def _pieces(self, word: str, draw: Callable[[], float]) -> list[str]:
        pieces = list(word)
        while merges := list(self._merges(pieces, draw)):
            n = -max(merges)[1]
            pieces[n : n + 2] = [pieces[n] + pieces[n + 1]]
        return pieces

    def _merges(self, pieces: list[str], draw: Callable[[], float]):
        """Yield (score, -position) of the merges that aren't left out."""
        for n, (left, right) in enumerate(pairwise(pieces)):
            score = self._scores.get(left + right)
            if score is not None and draw() >= self._p:
                yield score, -n
