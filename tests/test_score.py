"""Error rates: jiwer's counts against a plain edit distance, intervals against the binomial, and constructed texts.

What is refused of files stands in bad_inputs/score.yaml.
"""

import json

import numpy as np
import pytest
from refusals import refused
from runs import status_of

from asr.cli import score as command
from asr.data import manifest
from asr.data.manifest import Utterance
from asr.scoring.error_rate import ErrorRate, error_rates
from asr.scoring.report import score
from asr.scoring.significance import compare, interval, resampled_rates
from asr.text.normalize import replaced
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
    path.write_text("".join(f"{name}\t{text}\n" for name, text in texts.items()), "utf-8")
    return path


@pytest.fixture
def printed(tmp_path, capsys):
    """Run asr-score on texts; the lines that it prints."""

    def printed(ref, hyp, *more, against=None):
        files = [write(tmp_path / name, texts) for name, texts in (("r", ref), ("h", hyp))]
        if against:
            more = [*more, "--against", write(tmp_path / "o", against)]
        status_of(command.main, *files, *more)
        return capsys.readouterr().out.splitlines()

    return printed


# the value


def test_error_rates_add_and_check():
    total = sum([ErrorRate(3, 1, 0, 1), ErrorRate(2, 0, 2, 0)])
    assert total == ErrorRate(5, 1, 2, 1) and (total.errors, total.rate) == (4, 0.5)
    with pytest.raises(ValueError, match=r"expected counts of 0 or more, got \(1, -1, 0, 0\)"):
        ErrorRate(1, -1, 0, 0)
    with pytest.raises(ValueError, match="the reference is empty"):
        ErrorRate(0, 0, 0, 3).rate  # noqa: B018 (a property that raises)


@pytest.mark.parametrize("unit, split", [("word", str.split), ("char", list)])
def test_counts_are_the_edit_distance(unit, split):
    rng = np.random.default_rng(0)
    words = ["AB", "B", "C", "CA"]
    two = [[" ".join(rng.choice(words, rng.integers(low, 9))) for _ in range(60)] for low in (1, 0)]
    for rate, *texts in zip(error_rates(*two, unit), *two, strict=True):
        r, h = map(split, texts)
        assert (rate.errors, rate.reference) == (edits(r, h), len(r))
        assert rate.hits + rate.substitutions + rate.insertions == len(h)


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
    for block in (1 << 20, 700):
        monkeypatch.setattr("asr.scoring.significance.BLOCK", block)
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


def test_manifests_files_mappings_and_transcripts_score_alike(tmp_path):
    """Characters are composed: an accent is one with its letter or two, and NFC itself writes a letter as two."""
    references = {"u1": "CAFE\u0301 ON", "u2": "\u0958", "u3": "STOP"}
    hypotheses = {"u3": "STOP  IT", "u2": "\u0915\u093c", "u1": "CAF\u00c9"}
    sound = "/x.wav", 16000, 8000, 1, 0.0, 0.5
    utterances = [Utterance(name, *sound, text) for name, text in references.items()]
    manifest.write(tmp_path / "r.jsonl.gz", utterances)
    expected = score(references, hypotheses)
    word = expected.scores["word"]
    assert word.total == ErrorRate(3, 0, 1, 1) and word.rate == 0.5
    assert word.utterances["u1"] == ErrorRate(1, 0, 1, 0)
    assert word.interval == (word.low, word.high)
    assert expected.scores["char"].total.reference == 13
    transcripts = [*map(Transcript, hypotheses, hypotheses.values())]
    files = write(tmp_path / "r", references), write(tmp_path / "h", hypotheses)
    for ref in (tmp_path / "r.jsonl.gz", files[0], references):
        for hyp in (files[1], transcripts, iter(transcripts)):
            assert score(ref, hyp) == expected
    assert score(*files, against=hypotheses).differences["word"].value == 0
    refused(r"hyp.* 3 ids of ref, got 1 missing \(u1\)", score, references, transcripts[:2])
    twice = [*transcripts, transcripts[1]]
    refused(r"repeated ids in hyp \(1\): u2", score, references, twice)
    refused("ref: got no texts", score, {}, hypotheses)
    refused("unit: got 'words'.*mixed", score, references, hypotheses, "words")


def test_the_command_prints_a_line_a_unit(printed, tmp_path):
    two, one = ({f"u{n}": text for n in range(10)} for text in ("ONE TWO", "ONE"))
    options = "--unit", "word", "--json", str(tmp_path / "s.json")
    assert printed(two, two, *options, against=one) == [
        "WER 0.00 % [0.00, 0.00]: sub 0, del 0, ins 0 of 20 words, 0 of 10 utterances wrong",
        "WER difference -50.00 points [-50.00, -50.00], p = 0.0002 (paired bootstrap; below 0: the first is better)",
    ]
    told = json.loads((tmp_path / "s.json").read_text())
    assert told["wer"]["reference"] == 20 and told["wer"]["utterances"]["u3"]["hits"] == 2
    assert told["difference"]["wer"]["value"] == -0.5
    assert [line[:3] for line in printed(two, two)] == ["WER", "CER"]


def test_han_is_scored_by_the_mixed_error_rate(printed):
    """7 units of which one word is another and one character too many: 2 errors."""
    ref = {"u1": "我用 IPHONE 六", "u2": "打电话"}
    hyp = {"u1": "我用 ANDROID 六", "u2": "打打电话"}
    line = "sub 1, del 0, ins 1 of 7 characters and words, 2 of 2 utterances wrong"
    assert printed(ref, hyp) == [f"MER 28.57 % [25.00, 33.33]: {line}"]
    assert score(ref, hyp).as_json()["mer"]["errors"] == 2
    assert list(score(ref, hyp, "both").scores) == ["word", "char"]
    assert score(ref, ref).scores["mixed"].total.errors == 0


def test_texts_are_rewritten_before_they_are_compared(printed, capsys):
    """The old spelling of the option is accepted and not shown."""
    ref, hyp, other = ({"a": text} for text in ("It’s me, José!", "IT'S ME JOSE", "its me jose"))
    for name, errors in ((None, 3), ("plain", 1), ("english", 0)):
        assert score(ref, hyp, "word", None, name).scores["word"].total.errors == errors
    for spelling in ("--normalize", "--normalise"):
        first, second = printed(ref, hyp, spelling, "english", "--unit", "word", against=other)
        assert first.startswith("WER 0.00 %") and second.startswith("WER difference -33.33 points")
    status_of(command.main, "--help")
    shown = capsys.readouterr().out
    assert "--normalize" in shown and "--normalise" not in shown
    empty = r"empty references in ref \(1\): a"
    refused(empty, score, {"a": "..."}, hyp, normalize="plain")


def test_missing_and_extra_ids_are_refused_or_deletions_and_never_left_out(tmp_path, capsys):
    ref = write(tmp_path / "r", {f"u{n}": "A B" for n in range(8)})
    hyp = write(tmp_path / "h", {"u0": "A B", "v1": "B"})
    good = write(tmp_path / "g", {f"u{n}": "A B" for n in range(8)})
    missing = f"{hyp}: expected the 8 ids of {ref}, got 7 missing (u1, u2, u3, u4, u5 and 2 more)"
    for given in ({"hyp": hyp}, {"hyp": good, "against": hyp}):
        line = refused("", score, ref, **given)
        assert f"{missing} and 1 that {ref} doesn't have (v1)" in line
    refused(r"\(v1\)", score, ref, hyp, missing="deletions")  # a stranger
    hyp.write_text("u0\tA B\nu1\n")  # an id alone is an empty hypothesis
    assert status_of(command.main, ref, hyp) == 2
    assert "deletions for --missing" in capsys.readouterr().err
    status_of(command.main, ref, hyp, "--missing", "deletions", "--unit", "word")
    out, err = capsys.readouterr()
    assert "WER 87.50 %" in out and "del 14, ins 0 of 16 words, 7 of 8 utterances wrong" in out
    assert "6 missing, counted as deletions (u2" in err


def test_rules_replace_words_once_and_results_say_so(tmp_path, stderr):
    """Both sides of a rule are spelled as the base spells; what was replaced isn't matched again."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        'base: english\nrules: {ok: okay, "21": Twenty One, uh: "", A: B, B: A, B C: D}'
    )
    ref, hyp = {"u": "The okay, twenty one! A B D"}, {"u": "UH the Ok 21 b a b c uh"}
    report = score(ref, hyp, "word", normalize=str(rules))
    assert report.texts["ref"] == {"u": "THE OKAY TWENTY ONE B A D"}
    assert report.texts["hyp"] == {"u": "THE OKAY TWENTY ONE A B D"}
    name = f"{rules} (english, 6 rules)"
    assert report.normalization == report.as_json()["normalization"] == name
    files = write(tmp_path / "r", ref), write(tmp_path / "h", hyp)
    for given, expected in ((["--normalize", rules], name), ([], "none")):
        status_of(command.main, *files, *given)
        assert f"normalization: {expected}" in stderr()
    assert replaced("六点,五 OCLOCK 六", {("六",): "6", ("五", "OCLOCK"): "5"}) == "6点,5 6"
