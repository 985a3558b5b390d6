"""Byte-pair encoding with sentencepiece."""

import io
import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path

import sentencepiece

from asr.errors import UserError
from asr.files import read_bytes, replacing
from asr.text.bpe_dropout import BPEDropout
from asr.text.normalize import normalize
from asr.text.sample import draw
from asr.text.tokenizer import (
    AGAIN,
    DESCRIPTION,
    MOST_BYTES,
    check_description,
    check_symbols,
    no_text,
    save_description,
    unknown_character,
)

MODEL = "bpe.model"
WORDS = 1 << 17  # words whose ids are cached; LibriSpeech has 90,000
LONGEST = 1 << 18  # characters per text; sentencepiece silently drops longer ones
SAMPLE = 1_000_000  # most texts from which merges are learned; a million sentences take some 300 MB


class BPE:
    """sentencepiece's ids. Its 0 (unknown) never stands for text and serves as the blank; <sos/eos> comes last."""

    files = (MODEL,)

    def __init__(self, model: bytes):
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        # No piece has a space after its first character, so a text's ids are those of its words,
        # and most words recur
        self._encode_word = lru_cache(WORDS)(self._processor.encode)

    def __reduce__(self):
        """Pickle the model alone, without the cache, for another process."""
        return BPE, (self._model,)

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None) -> "BPE":
        """Train on texts, or on a sample of many; `size` counts all ids, with blank and <sos/eos>.

        Every character of the texts gets a token, even if it isn't in the sample.
        """
        if size is None or size < 2:
            raise UserError(
                f"bpe needs a vocabulary size, such as 500; got {size}", argument="size"
            )
        sample = draw(parts(filter(None, map(normalize, texts))), SAMPLE)
        if not sample.texts:
            raise no_text()
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sample.texts),
                model_writer=model,
                model_type="bpe",
                vocab_size=size - 1,
                character_coverage=1.0,
                required_chars="".join(sorted(sample.missing)),
                normalization_rule_name="identity",
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                num_threads=1,
                max_sentence_length=4 * LONGEST,
                minloglevel=2,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"tokenizer: a vocabulary of {size} doesn't fit these texts: {_reason(error)}"
            ) from None
        return cls(model.getvalue())

    @property
    def vocabulary(self) -> int:
        """The number of ids: sentencepiece's and <sos/eos>."""
        return self._processor.get_piece_size() + 1

    def encode(self, text: str, where: str = "text") -> list[int]:
        """Turn text into ids; UserError naming `where` for a character outside the vocabulary."""
        text = normalize(text)
        ids = [n for word in text.split() for n in self._encode_word(word)]
        if 0 in ids:
            raise unknown_character(where, text, self.unknown(text)[0])
        return ids

    def unknown(self, text: str) -> list[str]:
        """List the characters that are in no piece, in order, each as often as it occurs."""
        text = normalize(text)
        if 0 not in self._processor.encode(text):
            return []
        strange = {c for c in set(text) if 0 in self._processor.encode(c)}
        return [c for c in text if c in strange]

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text."""
        return normalize(
            self._processor.decode([n for n in map(int, ids) if 0 < n < self.vocabulary - 1])
        )

    def dropout(self, p: float) -> BPEDropout:
        """Make this encoding with merges left out with probability p."""
        pieces = {self._processor.id_to_piece(n): n for n in range(1, self.vocabulary - 1)}
        scores = {piece: self._processor.get_score(n) for piece, n in pieces.items()}
        return BPEDropout(pieces, scores, p)

    def symbols(self) -> list[str]:
        """List one printable name per id."""
        return ["<blank>", *self._pieces, "<sos/eos>"]

    @cached_property
    def _pieces(self) -> list[str]:
        """Names of all ids but the first and the last."""
        return self._processor.id_to_piece([*range(1, self.vocabulary - 1)])

    @property
    def content(self) -> bytes:
        """Return what defines the tokens, for a digest."""
        return self._model

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and bpe.model."""
        with replacing(Path(folder) / MODEL) as temporary:
            temporary.write_bytes(self._model)
        save_description(folder, {"kind": "bpe"}, self._model)

    @classmethod
    def load(cls, folder: Path, description: dict) -> "BPE":
        """Read bpe.model."""
        check_description(folder / DESCRIPTION, description, set())
        path = folder / MODEL
        content = read_bytes(path, f"missing; {AGAIN}", MOST_BYTES)
        try:
            made = cls(content)
            made._check(path)
        except (RuntimeError, TypeError, UnicodeDecodeError):
            raise UserError(f"{path}: damaged: not a sentencepiece model; {AGAIN}") from None
        return made

    def _check(self, path: Path) -> None:
        """Refuse a sentencepiece model that we didn't make: with other special pieces, or control characters."""
        processor, count = self._processor, self._processor.get_piece_size()
        specials = [n for n in range(1, count) if _is_special(processor, n)]
        if processor.unk_id() != 0 or specials:
            strange = specials[0] if specials else processor.unk_id()
            raise UserError(
                f"{path}: piece {strange} has a special role, expected only piece 0 to have one; {AGAIN}"
            )
        check_symbols(path, (processor.id_to_piece(n) for n in range(count)))


def _is_special(processor: sentencepiece.SentencePieceProcessor, n: int) -> bool:
    return any(
        test(n)
        for test in (
            processor.is_unknown,
            processor.is_control,
            processor.is_unused,
            processor.is_byte,
        )
    )


def parts(texts: Iterable[str]) -> Iterator[str]:
    """Split texts longer than LONGEST between words; merges never cross words anyway.

    raises   UserError for a longer word
    """
    for text in texts:
        while len(text) > LONGEST:
            space = text.rfind(" ", 0, LONGEST + 1)
            if space < 0:
                begin, most = text[:20], f"{LONGEST:,}"
                raise UserError(
                    f"tokenizer: a word of more than {most} characters ({begin!r}...); is this a text?"
                )
            yield text[:space]
            text = text[space + 1 :]
        yield text


def _reason(error: Exception) -> str:
    """Translate sentencepiece's reason to our number of ids, which includes <sos/eos>."""
    reason = str(error).strip().splitlines()[-1].split("] ")[-1]
    if most := re.search(r"value <= (\d+)", reason):
        return f"{int(most[1]) + 1} is the maximum"
    if least := re.search(r"required_chars\. \d+ vs (\d+)", reason):
        return f"their characters alone need {int(least[1]) + 1}"
    return reason
