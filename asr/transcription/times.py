"""Words with times: the tokens of each word, and the frames at which CTC emits them."""

from collections.abc import Sequence
from dataclasses import dataclass

from asr.text.tokenizer import Tokenizer
from asr.text.units import units


@dataclass(frozen=True)
class TokenWord:
    """A word, or a character of a script without spaces, and its tokens first ≤ n < end."""

    text: str
    first: int
    end: int


def words_of(tokens: Sequence[int], tokenizer: Tokenizer) -> list[TokenWord]:
    """Group the tokens of a text into words; tokens that write nothing, such as spaces, are left out.

    A token that writes several words, as some of Chinese do, belongs to each of them.
    """
    words: list[TokenWord] = []
    first, done = 0, 0  # the token with which the current word begins; words of that which are over
    text, end = "", 0  # what the current word is so far, and the token after its last one

    def written(first: int, end: int) -> list[str]:
        return units(tokenizer.decode(tokens[first:end]))

    for n in range(len(tokens)):
        parts = written(first, n + 1)[done:]
        if parts in ([], [text]):
            continue
        if not text and written(n, n + 1) == parts:
            first = n
        if len(parts) > 1:
            if text:
                words.append(TokenWord(parts[0], first, end if parts[0] == text else n + 1))
                parts = parts[1:]
            words += [TokenWord(part, n, n + 1) for part in parts[:-1]]
            first, done = n, max(0, len(written(n, n + 1)) - 1)
        text, end = parts[-1], n + 1
    return [*words, TokenWord(text, first, end)] if text else words
