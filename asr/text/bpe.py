"""Byte-pair encoding by sentencepiece."""

import io
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import sentencepiece

from asr.errors import UserError
from asr.files import replacing
from asr.text.bpe_dropout import BPEDropout
from asr.text.normalise import normalise
from asr.text.sample import draw
from asr.text.tokenizer import no_text, save_description, unknown_character

MODEL = "bpe.model"
WORDS = 1 << 17  # whose ids are kept: LibriSpeech has 90,000
SAMPLE = 1_000_000  # texts, at most, that the merges are learnt from; a million sentences take some 300 MB


class BPE:
    """sentencepiece's ids, whose 0 (unknown) serves as the blank, since it never stands for text; <sos/eos> is last."""

    def __init__(self, model: bytes):
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        # No piece holds a space behind its first place, so a text's ids are its words'; most words come again
        self._encode_word = lru_cache(WORDS)(self._processor.encode)

    @classmethod
    def train(cls, texts: Iterable[str], size: int | None) -> "BPE":
        """Train on texts, of many on a sample; `size` ids in all, blank and <sos/eos> included.

        Every character of the texts gets a token, whether it is in the sample or not.
        """
        if size is None or size < 2:
            raise UserError(f"tokenizer: bpe needs a vocabulary size, as --size 500; got {size}")
        sample = draw(filter(None, map(normalise, texts)), SAMPLE)
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
                max_sentence_length=1 << 20,
                minloglevel=2,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(f"tokenizer: a vocabulary of {size} doesn't fit these texts: {_reason(error)}") from None
        return cls(model.getvalue())

    @property
    def vocabulary(self) -> int:
        """Number of ids: sentencepiece's and <sos/eos>."""
        return self._processor.get_piece_size() + 1

    def encode(self, text: str, where: str = "text") -> list[int]:
        """Turn text into ids; UserError naming `where` for a character outside the vocabulary."""
        text = normalise(text)
        ids = [n for word in text.split() for n in self._encode_word(word)]
        if 0 in ids:
            raise unknown_character(where, text, self.unknown(text)[0])
        return ids

    def unknown(self, text: str) -> list[str]:
        """List the characters that no piece holds, in order, each as often as it stands there."""
        text = normalise(text)
        if 0 not in self._processor.encode(text):
            return []
        strange = {c for c in set(text) if 0 in self._processor.encode(c)}
        return [c for c in text if c in strange]

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids into text."""
        return normalise(self._processor.decode([n for n in map(int, ids) if 0 < n < self.vocabulary - 1]))

    def dropout(self, p: float) -> BPEDropout:
        """This encoding, leaving out merges with probability p."""
        pieces = {self._processor.id_to_piece(n): n for n in range(1, self.vocabulary - 1)}
        scores = {piece: self._processor.get_score(n) for piece, n in pieces.items()}
        return BPEDropout(pieces, scores, p)

    def symbols(self) -> list[str]:
        """One printable name an id."""
        return ["<blank>", *(self._processor.id_to_piece(n) for n in range(1, self.vocabulary - 1)), "<sos/eos>"]

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and bpe.model."""
        with replacing(Path(folder) / MODEL) as temporary:
            temporary.write_bytes(self._model)
        save_description(folder, {"kind": "bpe"})

    @classmethod
    def load(cls, folder: Path) -> "BPE":
        """Read bpe.model."""
        try:
            return cls((folder / MODEL).read_bytes())
        except (OSError, RuntimeError, TypeError):
            raise UserError(
                f"{folder / MODEL}: missing or damaged; make the tokenizer again with asr-tokenizer"
            ) from None


def _reason(error: Exception) -> str:
    """sentencepiece's reason in our count of ids, which has <sos/eos> too."""
    reason = str(error).strip().splitlines()[-1].split("] ")[-1]
    if most := re.search(r"value <= (\d+)", reason):
        return f"{int(most[1]) + 1} is the most"
    if least := re.search(r"required_chars\. \d+ vs (\d+)", reason):
        return f"their characters alone need {int(least[1]) + 1}"
    return reason
