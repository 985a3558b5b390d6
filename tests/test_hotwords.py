"""Hotwords: against a search for every phrase at every place of a string, by laws, and on the words of tokenizers.

Brute force knows no automaton: it takes the characters of all tokens read so far, and looks at every place for every
phrase, and for the longest end that begins one.
"""

import random

import pytest
import torch
from scorers import check_device, check_scorer, read

from asr.errors import UserError
from asr.search.automaton import HotwordScorer, build, joins
from asr.search.hotwords import Phrase, read_phrases
from asr.text.tokenizer import train

each = pytest.mark.parametrize
LETTERS = "ab'"
KINDS = {  # characters of tokens, longest token
    "characters": ("ab▁", 1),
    "letters": ("ab'▁", 4),
    "han": ("京津▁", 2),
    "mixed": ("ab▁京津,", 3),
}


def scorer_of(phrases, symbols):
    return HotwordScorer(build(phrases, symbols))


def boundary(x, y):
    """Whether a word may end between two characters; of the alphabet of these tests."""
    return not (x in LETTERS and y in LETTERS)


def occurrences(text, phrases, after="▁"):
    """Sum of the credit of phrases in a text, and of what is certain of it when a letter may follow."""
    whole = f"▁{text}{after}"
    return sum(
        phrase.credit
        for phrase in phrases
        for i in range(1, len(text) - len(phrase.text) + 2)
        if whole.startswith(phrase.text, i)
        and boundary(whole[i - 1], phrase.text[0])
        and boundary(phrase.text[-1], whole[i + len(phrase.text)])
    )


def lent(text, phrases):
    """Share of the longest end of the text that is an unfinished phrase's beginning."""
    whole = f"▁{text}"
    for i in range(1, len(whole)):
        end = whole[i:]
        some = [
            phrase.credit * len(end) / len(phrase.text)
            for phrase in phrases
            if phrase.text.startswith(end) and (phrase.text != end or end[-1] in LETTERS)
        ]
        if some and boundary(whole[i - 1], end[0]):
            return max(some)
    return 0.0


def random_case(seed, kind):
    """Tokens, phrases over their characters, of which some begin others, and sequences of labels that often hit."""
    draw = random.Random(f"{seed} {kind}")
    alphabet, longest = KINDS[kind]

    def strings(count, longest):
        return {"".join(draw.choices(alphabet, k=draw.randint(1, longest))) for _ in range(count)}

    symbols = ["<blank>", *sorted(strings(25, longest) | set(alphabet)), "<sos/eos>"]
    texts = sorted(strings(draw.randint(1, 8), 6))
    texts += [text[: draw.randint(1, len(text))] for text in texts]
    texts = sorted({text.strip("▁") for text in texts} - {""}) or ["a"]
    phrases = [Phrase(text, draw.uniform(0.1, 5)) for text in texts]
    pieces = [*texts, *alphabet, "▁"]
    hits = ["".join(draw.choices(pieces, k=draw.randint(1, 9))) for _ in range(9)]
    return symbols, phrases, [spell(text, symbols, draw) for text in hits]


def spell(text, symbols, draw):
    """Any tokens that spell a text."""
    labels = []
    while text:
        some = [n for n, symbol in enumerate(symbols[1:-1], 1) if text.startswith(symbol)]
        labels.append(draw.choice(some))
        text = text[len(symbols[labels[-1]]) :]
    return labels


@each("kind", KINDS)
@each("seed", range(25))
def test_scores_are_those_of_brute_force(seed, kind):
    symbols, phrases, sequences = random_case(seed, kind)
    rows = read(scorer_of(phrases, symbols), sequences, len(symbols))
    for scores, labels in zip(rows, sequences, strict=True):
        text = ""
        for u, label in enumerate(labels, 1):
            text += symbols[label]
            expected = occurrences(text, phrases, after="a") + lent(text, phrases)
            assert sum(scores[:u]) == pytest.approx(expected, abs=1e-9)
        assert sum(scores) == pytest.approx(occurrences(text, phrases), abs=1e-9)


@each("kind", KINDS)
def test_laws_and_the_ceiling_is_near(kind):
    """No state gives more than the ceiling, and some one nearly as much: here at least half."""
    for seed in range(8):
        symbols, phrases, _ = random_case(seed, kind)
        scorer = scorer_of(phrases, symbols)
        check_scorer(scorer)
        states = torch.arange(len(scorer.hotwords.partial_credit)).view(1, -1)
        most = float(scorer.score(states, None).max())
        assert most <= scorer.ceiling <= 2 * most


def test_everything_is_on_the_device():
    hotwords = build([Phrase("AB", 1.0)], ["<blank>", "A", "B", "<sos/eos>"])
    check_device(HotwordScorer(hotwords.to("meta")), 4)


TEXTS = ["NEW YORK PARTY ART", "THE ART OF NEWARK", "NEW PARTS IN YORK'S PARK", "THE QUICK FOX"]
HAN = ["我们今天去北京", "北京的天气", "今天 iPhone 手机", "很好", "天天向上"]
WORDS = [  # a file of phrases, what the tokenizer learns from, and which phrases count in a text
    (
        "NEW YORK\t1.5\n\nART\n YORK \t0.5 \n",
        TEXTS,
        {
            "NEW YORK": ["NEW YORK", "YORK"],  # nested: each counts
            "THE NEW YORK ART": ["NEW YORK", "YORK", "ART"],
            "ART": ["ART"],
            "ART ART": ["ART", "ART"],
            "NEW NEW YORK": ["NEW YORK", "YORK"],
        }
        | dict.fromkeys(["PARTY", "PARTS", "YORK'S", "NEWARK", "NEW", "NEW PARTY", "THE FOX"], []),
    ),
    (
        "北京\niPhone\n天气\n",
        HAN,
        {
            "我们今天去北京": ["北京"],
            "北京的天气": ["北京", "天气"],
            "北京北京": ["北京", "北京"],
            "今天iPhone手机": ["iPhone"],  # between scripts words end
            "iPhone iPhone": ["iPhone", "iPhone"],
            "iPhoneo": [],
            "北 京": [],
        },
    ),
]


@each("kind", ["characters", "bpe"])
@each("content, texts, expected", WORDS)
def test_words_and_phrases_of_a_tokenizer(kind, content, texts, expected, tmp_path):
    """Where words have spaces between them and where they have none; 2 nats a token."""
    tokenizer = train(kind, texts * 3, 60 if kind == "bpe" else None)
    (tmp_path / "hot.txt").write_text(content, encoding="utf-8")
    symbols, weights = tokenizer.symbols(), {"NEW YORK": 1.5, "YORK": 0.5}
    scorer = scorer_of(read_phrases(tmp_path / "hot.txt", tokenizer.encode, symbols, 2.0), symbols)
    rows = read(scorer, list(map(tokenizer.encode, expected)), tokenizer.vocabulary)
    for scores, heard in zip(rows, expected.values(), strict=True):
        credit = sum(weights.get(x, 2.0) * len(tokenizer.encode(x)) for x in heard)
        assert sum(scores) == pytest.approx(credit)


MISTAKES = {
    "\n \n": ": no phrase in it",
    "ART\nFOX\ttwo\n": ":2: got weight 'two', expected a factor above 0",
    "ART\t\n": ":1: got weight '', expected a factor above 0",
    "ART\t0\n": ":1: got weight '0', expected a factor above 0",
    "\n\t2\n": ":2: got '\\t2', expected a phrase before the tab",
    "ART\nARÖ\n": ":2: character 'Ö' (U+00D6) of 'ARÖ' is not in the tokenizer's vocabulary",
}


@each("kind", ["characters", "bpe"])
@each("content", MISTAKES)
def test_mistakes(content, kind, tmp_path):
    """Beside those of bad_inputs/decode.yaml."""
    tokenizer = train(kind, TEXTS * 3, 60 if kind == "bpe" else None)
    (tmp_path / "hot.txt").write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_phrases(tmp_path / "hot.txt", tokenizer.encode, tokenizer.symbols(), 2.0)
    assert str(caught.value).startswith(f"{tmp_path}/hot.txt{MISTAKES[content]}")


def test_what_joins():
    assert all(map(joins, "aZéöжα1'’")) and not any(map(joins, "▁ ,.-!的あアไ々"))
    assert joins("\u0301") and joins("한") and joins("ع")  # a combining accent, scripts with spaces
