"""Error rates: jiwer's counts against a plain edit distance, intervals against the binomial, messages word by word."""

import gzip
import json

import numpy as np
import pytest

from asr.cli import score as command
from asr.data import manifest
from asr.data.manifest import Utterance
from asr.errors import UserError
from asr.scoring.error_rate import ErrorRate, error_rates
from asr.scoring.report import score, score_texts
from asr.scoring.significance import compare, interval, resampled_rates
from asr.transcript import Transcript


def edits(reference, hypothesis):
    """Levenshtein distance by the textbook's recursion, row by row."""
    row = list(range(len(hypothesis) + 1))
    for i, r in enumerate(reference, 1):
        last, row[0] = row[0], i
        for j, h in enumerate(hypothesis, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (r != h))
    return row[-1]


def write(path, texts):
    path.write_text("".join(f"{name}\t{text}\n" for name, text in texts.items()), encoding="utf-8")
    return path


def refused(message, *args, **options):
    with pytest.raises(UserError) as error:
        score(*args, **options)
    assert str(error.value) == message


# the value


def test_error_rates_add_and_check():
    total = sum([ErrorRate(3, 1, 0, 1), ErrorRate(2, 0, 2, 0)])
    assert total == ErrorRate(5, 1, 2, 1)
    assert (total.errors, total.reference, total.rate) == (4, 8, 0.5)
    with pytest.raises(ValueError, match=r"expected counts of 0 or more, got \(1, -1, 0, 0\)"):
        ErrorRate(1, -1, 0, 0)
    with pytest.raises(ValueError, match="the reference is empty: there is no error rate"):
        ErrorRate(0, 0, 0, 3).rate  # noqa: B018 (a property that raises)


@pytest.mark.parametrize(
    "reference,hypothesis,unit,expected",
    [
        ("A B C", "A B C", "word", ErrorRate(3, 0, 0, 0)),
        ("A B C", "A X C D", "word", ErrorRate(2, 1, 0, 1)),
        ("A B C", "", "word", ErrorRate(0, 0, 3, 0)),
        ("A  B", " A B ", "word", ErrorRate(2, 0, 0, 0)),
        ("A B", "AB", "char", ErrorRate(2, 0, 1, 0)),  # the space between words is a character
        ("今天天气", "今天气", "char", ErrorRate(3, 0, 1, 0)),
    ],
)
def test_counts(reference, hypothesis, unit, expected):
    assert error_rates([reference], [hypothesis], unit) == [expected]


@pytest.mark.parametrize("unit", ["word", "char"])
def test_counts_are_the_edit_distance(unit):
    rng = np.random.default_rng(0)
    draw = lambda least: " ".join(rng.choice(["AB", "B", "C", "CA"], rng.integers(least, 9)))  # noqa: E731
    references, hypotheses = [draw(1) for _ in range(60)], [draw(0) for _ in range(60)]
    units = (lambda text: text.split()) if unit == "word" else list
    for rate, r, h in zip(
        error_rates(references, hypotheses, unit), references, hypotheses, strict=True
    ):
        assert rate.errors == edits(units(r), units(h))
        assert rate.reference == len(
            units(r)
        ) and rate.hits + rate.substitutions + rate.insertions == len(units(h))


# intervals and significance


def test_the_interval_covers_what_the_binomial_says():
    """One-word utterances are coin tosses: the 95 % interval of 1000 tosses at 20 % is about ±1.96·sqrt(p·q/n)."""
    rates = [ErrorRate(0, 1, 0, 0)] * 200 + [ErrorRate(1, 0, 0, 0)] * 800
    low, high = interval(resampled_rates([rates])[0])
    assert (low, high) == pytest.approx((0.2 - 0.0248, 0.2 + 0.0248), abs=0.002)


def test_utterances_weigh_by_their_length():
    rates = [ErrorRate(0, 10, 0, 0), ErrorRate(90, 0, 0, 0)]
    assert set(np.round(resampled_rates([rates])[0], 6)) == {0.0, 0.1, 1.0}


def test_resampling_is_the_same_again_and_in_blocks(monkeypatch):
    rates = [ErrorRate(n % 5, n % 3 + 1, 0, n % 2) for n in range(50)]
    whole = resampled_rates([rates], 1000)
    np.testing.assert_array_equal(whole, resampled_rates([rates], 1000))
    monkeypatch.setattr("asr.scoring.significance.BLOCK", 700)
    np.testing.assert_array_equal(whole, resampled_rates([rates], 1000))


def test_significance():
    good, bad = ErrorRate(9, 1, 0, 0), ErrorRate(6, 4, 0, 0)
    same = compare([good, bad] * 20, [good, bad] * 20)
    assert (same.value, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)
    luck = compare([good, bad] * 20, [bad, good] * 20)
    assert luck.value == 0 and luck.p > 0.5 and luck.low < 0 < luck.high
    better = compare([good] * 40, [good, bad] * 20)
    assert better.value == pytest.approx(-0.15) and better.high < 0 and better.p < 0.001
    with pytest.raises(ValueError, match="not scored on the same references"):
        compare([good], [ErrorRate(1, 0, 0, 0)])


# the call and the command


def test_a_manifest_and_a_text_file_score_alike(tmp_path):
    texts = {"u1": "GO ON", "u2": "STOP"}
    utterances = [
        Utterance(name, "/x.wav", 16000, 8000, 1, 0.0, 0.5, text) for name, text in texts.items()
    ]
    manifest.write(tmp_path / "r.jsonl.gz", utterances)
    plain, hyp = (
        write(tmp_path / "r.txt", texts),
        write(tmp_path / "h.txt", {"u2": "STOP IT", "u1": ""}),
    )
    report = score(tmp_path / "r.jsonl.gz", hyp)
    assert report == score(plain, hyp)
    assert report.scores["word"].total == ErrorRate(1, 0, 2, 1)
    assert report.scores["word"].utterances["u1"] == ErrorRate(0, 0, 2, 0)
    assert report.scores["char"].total.reference == 9


def test_characters_are_compared_composed(tmp_path):
    """Whether e and its accent are one, as tokens have them, or two; and a letter that NFC writes as two."""
    references = {"u1": "CAFE\u0301 NOIR", "u2": "\u0958"}
    utterances = [
        Utterance(name, "/x.wav", 16000, 8000, 1, 0.0, 0.5, text)
        for name, text in references.items()
    ]
    manifest.write(tmp_path / "r.jsonl.gz", utterances)
    hyp = write(tmp_path / "h.txt", {"u1": "CAF\u00c9 NOIR", "u2": "\u0915\u093c"})
    for reference in (tmp_path / "r.jsonl.gz", write(tmp_path / "r.txt", references)):
        assert score(reference, hyp, unit="word").scores["word"].total == ErrorRate(3, 0, 0, 0)


def test_the_command_prints_a_line_a_unit(tmp_path, capsys):
    ref = write(tmp_path / "r", {f"u{n}": "ONE TWO" for n in range(10)})
    hyp = write(tmp_path / "h", {f"u{n}": "ONE TWO" for n in range(10)})
    other = write(tmp_path / "o", {f"u{n}": "ONE" for n in range(10)})
    command.main(
        [
            str(ref),
            str(hyp),
            "--against",
            str(other),
            "--unit",
            "word",
            "--json",
            str(tmp_path / "s.json"),
        ]
    )
    assert capsys.readouterr().out == (
        "WER 0.00 % [0.00, 0.00]: sub 0, del 0, ins 0 of 20 words, 0 of 10 utterances wrong\n"
        "WER difference -50.00 points [-50.00, -50.00], p = 0.0002 (paired bootstrap; below 0: the first is better)\n"
    )
    told = json.loads((tmp_path / "s.json").read_text())
    assert told["wer"]["reference"] == 20 and told["wer"]["utterances"]["u3"]["hits"] == 2
    assert told["difference"]["wer"]["value"] == -0.5
    command.main([str(ref), str(hyp)])
    assert [line[:3] for line in capsys.readouterr().out.splitlines()] == ["WER", "CER"]


def test_han_is_scored_by_the_mixed_error_rate(tmp_path, capsys):
    """7 units of which one word is another and one character too many: 2 errors."""
    ref = write(tmp_path / "r", {"u1": "我用 IPHONE 六", "u2": "打电话"})
    hyp = write(tmp_path / "h", {"u1": "我用 ANDROID 六", "u2": "打打电话"})
    command.main([str(ref), str(hyp)])
    line = "sub 1, del 0, ins 1 of 7 characters and words, 2 of 2 utterances wrong"
    assert capsys.readouterr().out == f"MER 28.57 % [25.00, 33.33]: {line}\n"
    assert score(ref, hyp).as_json()["mer"]["errors"] == 2
    assert list(score(ref, hyp, "both").scores) == ["word", "char"]
    assert (
        list(score(ref, ref).scores) == ["mixed"]
        and score(ref, ref).scores["mixed"].total.errors == 0
    )
    refused("unit: got 'words', expected one of auto, word, char, mixed, both", ref, hyp, "words")


def test_texts_are_rewritten_before_they_are_compared(tmp_path, capsys):
    ref = write(tmp_path / "r", {"u1": "It’s me, José!"})
    hyp, other = (
        write(tmp_path / "h", {"u1": "IT'S ME JOSE"}),
        write(tmp_path / "o", {"u1": "its me jose"}),
    )
    rates = [
        score(ref, hyp, "word", None, name).scores["word"].total.errors
        for name in (None, "plain", "english")
    ]
    assert rates == [3, 1, 0]
    command.main(
        [str(ref), str(hyp), "--against", str(other), "--normalize", "english", "--unit", "word"]
    )
    assert [line.split(" [")[0] for line in capsys.readouterr().out.splitlines()] == [
        "WER 0.00 %",
        "WER difference -33.33 points",
    ]
    silent = write(tmp_path / "s", {"u1": "..."})
    message = f"empty references in {silent} (1): u1; an error rate needs words to compare with"
    refused(message, silent, hyp, normalize="plain")


def test_files_mappings_and_transcripts_score_alike(tmp_path):
    references, hypotheses = {"u1": "GO ON", "u2": "STOP"}, {"u1": "", "u2": "STOP  IT"}
    expected = score(write(tmp_path / "r", references), write(tmp_path / "h", hypotheses))
    transcripts = [Transcript(name, text) for name, text in hypotheses.items()]
    assert score(references, hypotheses) == score(references, transcripts) == expected
    assert score(references, iter(transcripts), against=hypotheses).differences["word"].value == 0
    word = expected.scores["word"]
    assert word.rate == word.total.rate == 1.0 and word.interval == (word.low, word.high)
    fix = "; choose deletions for `missing` to count them as errors"
    refused(f"hyp: expected the 2 ids of ref, got 1 missing (u2){fix}", references, transcripts[:1])
    refused(
        "repeated ids in hyp (1): u2; each utterance has one text",
        references,
        [*transcripts, transcripts[1]],
    )
    refused("ref: got no texts", {}, hypotheses)


def test_missing_and_extra_ids(tmp_path):
    ref, hyp = (
        write(tmp_path / "r", {f"u{n}": "A" for n in range(8)}),
        write(tmp_path / "h", {"u0": "A", "v1": "B"}),
    )
    missing = f"7 missing (u1, u2, u3, u4, u5 and 2 more) and 1 that {ref} doesn't have (v1)"
    refused(f"{hyp}: expected the 8 ids of {ref}, got {missing}", ref, hyp)
    good = write(tmp_path / "g", {f"u{n}": "A" for n in range(8)})
    refused(f"{hyp}: expected the 8 ids of {ref}, got {missing}", ref, good, against=hyp)


def test_repeated_ids(tmp_path):
    ref = write(tmp_path / "r", {"u1": "A"})
    hyp = tmp_path / "h"
    hyp.write_text("u1\tA\nu1\tB\n")
    refused(f"repeated ids in {hyp} (1): u1; each utterance has one text", ref, hyp)


def test_empty_reference(tmp_path):
    ref = write(tmp_path / "r", {"u1": "A", "u2": " "})
    message = f"empty references in {ref} (1): u2; an error rate needs words to compare with"
    refused(message, ref, write(tmp_path / "h", {"u1": "A", "u2": "B"}))


def test_files_that_are_none(tmp_path):
    ref, hyp = write(tmp_path / "r", {"u1": "A"}), tmp_path / "h"
    refused(f"{hyp}: can't be read (No such file or directory)", ref, hyp)
    hyp.touch()
    refused(f"{hyp}: is empty; expected a manifest or lines of `id<TAB>text`", ref, hyp)
    hyp.write_text("u1 A\n")
    refused(f"{hyp}:1: expected `id<TAB>text`, got 'u1 A'", ref, hyp)
    bad = tmp_path / "m.jsonl.gz"
    bad.write_bytes(gzip.compress(b"u1\tA\n"))
    with pytest.raises(
        UserError, match=r"m.jsonl.gz:1: expected a lhotse MonoCut with a recording"
    ):
        score(bad, hyp)


def test_an_id_alone_is_an_empty_hypothesis(tmp_path):
    ref, hyp = write(tmp_path / "r", {"u1": "A"}), tmp_path / "h"
    hyp.write_text("u1\n")
    assert score(ref, hyp, unit="word").scores["word"].total == ErrorRate(0, 0, 1, 0)


def test_score_texts_from_python():
    result = score_texts({"a": "GO ON", "b": "UP"}, {"b": "UP", "a": "GO"}, "word")
    assert result.total.rate == pytest.approx(1 / 3) and result.wrong == 1


def test_the_old_spelling_of_an_option_is_accepted_and_not_shown(tmp_path, capsys):
    (tmp_path / "ref.txt").write_text("a\tIt's José!\n")
    (tmp_path / "hyp.txt").write_text("a\tIT'S JOSE\n")
    for spelling in ("--normalize", "--normalise"):
        command.main(
            [
                str(tmp_path / "ref.txt"),
                str(tmp_path / "hyp.txt"),
                spelling,
                "english",
                "--unit",
                "word",
            ]
        )
        assert capsys.readouterr().out.startswith("WER 0.00 %")
    with pytest.raises(SystemExit):
        command.main(["--help"])
    shown = capsys.readouterr().out
    assert "--normalize" in shown and "--normalise" not in shown
