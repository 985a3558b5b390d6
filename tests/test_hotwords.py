"""Hotwords: against a search for every phrase at every place of a string, by laws, and on constructed phrases.

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

LETTERS = "ab'"
KINDS = {  # characters of tokens, longest token
    "characters": ("ab▁", 1),
    "letters": ("ab'▁", 4),
    "han": ("京津▁", 2),
    "mixed": ("ab▁京津,", 3),
}


def scorer_of(path, tokenizer):
    """The scorer of a file of phrases, 2 nats a token."""
    symbols = tokenizer.symbols()
    return HotwordScorer(build(read_phrases(path, tokenizer.encode, symbols, 2.0), symbols))


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
        some = [
            phrase.credit * len(whole[i:]) / len(phrase.text)
            for phrase in phrases
            if phrase.text.startswith(whole[i:])
            and (phrase.text != whole[i:] or whole[-1] in LETTERS)
        ]
        if some and boundary(whole[i - 1], whole[i]):
            return max(some)
    return 0.0


def random_case(seed, kind):
    """Tokens, phrases over their characters and sequences of labels that often hit."""
    draw = random.Random(f"{seed} {kind}")
    alphabet, longest = KINDS[kind]
    tokens = sorted(
        {"".join(draw.choices(alphabet, k=draw.randint(1, longest))) for _ in range(25)}
        | set(alphabet)
    )
    symbols = ["<blank>", *tokens, "<sos/eos>"]
    texts = {
        "".join(draw.choices(alphabet, k=draw.randint(1, 6))).strip("▁")
        for _ in range(draw.randint(1, 8))
    } - {""}
    texts |= {text[: draw.randint(1, len(text))].strip("▁") for text in texts} - {
        ""
    }  # phrases that begin phrases
    phrases = [Phrase(text, draw.uniform(0.1, 5)) for text in sorted(texts)] or [Phrase("a", 1.0)]
    sequences = []
    for _ in range(9):
        text = "".join(draw.choice([*texts, *alphabet, "▁"]) for _ in range(draw.randint(1, 9)))
        sequences.append(spell(text, symbols, draw))
    return symbols, phrases, sequences


def spell(text, symbols, draw):
    """Any tokens that spell a text."""
    labels = []
    while text:
        labels.append(
            draw.choice([n for n, s in enumerate(symbols[1:-1], 1) if text.startswith(s)])
        )
        text = text[len(symbols[labels[-1]]) :]
    return labels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(25))
def test_scores_are_those_of_brute_force(seed, kind):
    symbols, phrases, sequences = random_case(seed, kind)
    scorer = HotwordScorer(build(phrases, symbols))
    for scores, labels in zip(read(scorer, sequences, len(symbols)), sequences, strict=True):
        text = ["".join(symbols[y] for y in labels[:u]) for u in range(len(labels) + 1)]
        for u in range(1, len(labels) + 1):
            expected = occurrences(text[u], phrases, after="a") + lent(text[u], phrases)
            assert sum(scores[:u]) == pytest.approx(expected, abs=1e-9)
        assert sum(scores) == pytest.approx(occurrences(text[-1], phrases), abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_laws(kind):
    for seed in range(8):
        symbols, phrases, sequences = random_case(seed, kind)
        check_scorer(HotwordScorer(build(phrases, symbols)), len(symbols), sequences)


def test_everything_is_on_the_device():
    check_device(
        HotwordScorer(build([Phrase("AB", 1.0)], ["<blank>", "A", "B", "<sos/eos>"]).to("meta")), 4
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_ceiling_is_near(kind):
    """No state gives more, and some one nearly as much: here at least half."""
    for seed in range(8):
        symbols, phrases, _ = random_case(seed, kind)
        scorer = HotwordScorer(build(phrases, symbols))
        states = torch.arange(len(scorer.hotwords.partial_credit)).view(1, -1)
        most = float(scorer.score(states, None).max())
        assert most <= scorer.ceiling <= 2 * most


def tokenizer_of(kind, texts):
    return train(kind, texts, 60 if kind == "bpe" else None)


TEXTS = [
    "NEW YORK PARTY ART",
    "THE ART OF NEWARK",
    "NEW PARTS IN YORK'S PARK",
    "THE QUICK FOX",
    "NEW YORK",
] * 3


def totals(scorer, tokenizer, texts):
    return [
        sum(scores)
        for scores in read(scorer, [tokenizer.encode(t) for t in texts], tokenizer.vocabulary)
    ]


@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_words_and_phrases_of_a_tokenizer(kind, tmp_path):
    tokenizer = tokenizer_of(kind, TEXTS)
    (tmp_path / "hot.txt").write_text("NEW YORK\t1.5\n\nART\n YORK \t0.5 \n")
    scorer = scorer_of(tmp_path / "hot.txt", tokenizer)
    both, art, york = (
        w * len(tokenizer.encode(t)) for t, w in (("NEW YORK", 1.5), ("ART", 2), ("YORK", 0.5))
    )
    expected = {
        "NEW YORK": both + york,  # nested: each counts
        "THE NEW YORK ART": both + york + art,
        "ART": art,
        "ART ART": 2 * art,
        "PARTY": 0,
        "PARTS": 0,
        "YORK'S": 0,
        "NEWARK": 0,
        "NEW": 0,
        "NEW PARTY": 0,
        "NEW NEW YORK": both + york,
        "THE FOX": 0,
    }
    assert totals(scorer, tokenizer, expected) == pytest.approx(list(expected.values()))


def test_every_spelling_of_a_word_counts(tmp_path):
    tokenizer = tokenizer_of("bpe", TEXTS)
    (tmp_path / "hot.txt").write_text("ART\n")
    scorer = scorer_of(tmp_path / "hot.txt", tokenizer)
    credit = 2.0 * len(tokenizer.encode("ART"))
    symbols, V = tokenizer.symbols(), tokenizer.vocabulary
    draw = random.Random(0)
    spellings = {tuple(spell("▁THE▁ART", symbols, draw)) for _ in range(300)}
    assert len(spellings) > 10
    assert [sum(x) for x in read(scorer, list(map(list, spellings)), V)] == pytest.approx(
        [credit] * len(spellings)
    )


@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_scripts_without_spaces_match_anywhere(kind, tmp_path):
    tokenizer = tokenizer_of(
        kind, ["我们今天去北京", "北京的天气", "今天 iPhone 手机", "很好", "天天向上"] * 3
    )
    (tmp_path / "hot.txt").write_text("北京\niPhone\n天气\n", encoding="utf-8")
    scorer = scorer_of(tmp_path / "hot.txt", tokenizer)
    beijing, phone, weather = (2.0 * len(tokenizer.encode(t)) for t in ("北京", "iPhone", "天气"))
    expected = {
        "我们今天去北京": beijing,
        "北京的天气": beijing + weather,
        "北京北京": 2 * beijing,
        "今天iPhone手机": phone,  # between scripts words end
        "iPhone iPhone": 2 * phone,
        "iPhoneo": 0,
        "北 京": 0,
    }
    assert totals(scorer, tokenizer, expected) == pytest.approx(list(expected.values()))


def test_lending_and_taking_back():
    """ABAC and BAD, 8 and 3 nats, in characters of a script without spaces: each step by hand."""
    symbols = ["<blank>", *"京津沪渝", "<sos/eos>"]
    A, B, C, D = range(1, 5)
    scorer = HotwordScorer(build([Phrase("京津京沪", 8.0), Phrase("津京渝", 3.0)], symbols))
    expected = {
        (A, B, A, C): [2, 2, 2, 8 - 6, 0],
        (A, B, A, D): [2, 2, 2, 3 - 6, 0],  # falls back to BA, which D completes
        (A, B, A, B): [2, 2, 2, 4 - 6, -4],  # falls back to AB, taken back at the end
        (A, B, C): [2, 2, -4, 0],
        (C, D): [0, 0, 0],
    }
    assert read(scorer, [list(y) for y in expected], 6) == [
        pytest.approx(scores) for scores in expected.values()
    ]
    assert scorer.ceiling == pytest.approx(2.0)


def test_a_word_is_complete_when_it_ends():
    symbols = ["<blank>", "▁", "▁ART", "S", ",", "<sos/eos>"]
    space, art, s, comma = range(1, 5)
    scorer = HotwordScorer(build([Phrase("ART", 2.0)], symbols))
    expected = {
        (art,): [2, 0],
        (art, s): [2, -2, 0],
        (art, space): [2, 0, 0],
        (art, art): [2, 2, 0],
        (art, comma): [2, 0, 0],
    }
    assert read(scorer, [list(y) for y in expected], 6) == [
        pytest.approx(scores) for scores in expected.values()
    ]


def message(folder, content, tokenizer):
    (folder / "hot.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        read_phrases(folder / "hot.txt", tokenizer.encode, tokenizer.symbols(), 2.0)
    return str(caught.value)


MISTAKES = {
    "empty": ("", ": no phrase in it; expected one phrase per line"),
    "blank": ("\n \n", ": no phrase in it; expected one phrase per line"),
    "weight": ("ART\nFOX\ttwo\n", ":2: got weight 'two', expected a factor above 0"),
    "no weight": ("ART\t\n", ":1: got weight '', expected a factor above 0"),
    "weight 0": ("ART\t0\n", ":1: got weight '0', expected a factor above 0"),
    "not a weight": ("ART\tnan\n", ":1: got weight 'nan', expected a factor above 0"),
    "two tabs": ("ART\t1\t2\n", ":1: got weight '1\\t2', expected a factor above 0"),
    "no phrase": ("\n\t2\n", ":2: got '\\t2', expected a phrase before the tab"),
    "character": (
        "ART\nARÖ\n",
        ":2: character 'Ö' (U+00D6) of 'ARÖ' is not in the tokenizer's vocabulary",
    ),
    "twice": ("ART\nFOX\n ART \t3\n", ":3: 'ART' is in line 1 already"),
    "not text": (b"ART\n\xff\n", ": is not UTF-8 text; expected hotwords: one phrase per line"),
}


@pytest.mark.parametrize("kind", ["characters", "bpe"])
@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes(case, kind, tmp_path):
    content, expected = MISTAKES[case]
    assert message(tmp_path, content, tokenizer_of(kind, TEXTS)).startswith(
        f"{tmp_path}/hot.txt{expected}"
    )


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError) as caught:
        read_phrases(tmp_path / "no.txt", None, [], 2.0)
    assert str(caught.value).startswith(
        f"{tmp_path}/no.txt: can't be read (No such file or directory); expected hotwords"
    )


def test_what_joins():
    assert all(map(joins, "aZéöжα1'’あ"[:-1])) and not any(map(joins, "▁ ,.-!的あアไ々"))
    assert joins("\u0301") and joins("한") and joins("ع")  # a combining accent, scripts with spaces
