"""NIST's files: totals against sclite itself (skipped without it), and constructed segments.

sclite weighs a substitution 4, a deletion or insertion 3, and jiwer each 1. So sclite may count more errors where it
trades d substitutions for j deletions and j insertions, 1.5 j ≤ d < 2 j: three substitutions at least. Below that the
totals are equal.
"""

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from asr.scoring import translation as translations
from asr.scoring.report import score

each = pytest.mark.parametrize
SCLITE = next(filter(None, map(shutil.which, ("sclite", "sctk"))), None)
needs_sclite = pytest.mark.skipif(not SCLITE, reason="no sclite to compare with (Debian: sctk)")
STM = """;; a comment
f A x 0.0 2.0 <o,f0> GO ON
f A gap 2.0 3.0 <o> IGNORE_TIME_SEGMENT_IN_SCORING
f A y 3.0 5.0 UP AND DOWN
f B x 0.0 1.0 LEFT
"""


def sclite(ref, hyp):
    """Counts of each utterance by sclite: hits, substitutions, deletions, insertions."""
    words = [SCLITE] + ["sclite"] * SCLITE.endswith("sctk") + ["-s", "-i", "rm"]
    files = ["-r", ref, ref.suffix[1:], "-h", hyp, hyp.suffix[1:], "-o", "pralign", "stdout"]
    done = subprocess.run([*words, *files], capture_output=True, text=True, check=True)
    found = re.findall(r"Scores: \(#C #S #D #I\) (\d+) (\d+) (\d+) (\d+)", done.stdout)
    return [tuple(map(int, counts)) for counts in found]


def agree(own, its):
    """Whether counts of one utterance are as both weights allow."""
    (_, s, d, i), (_, S, D, I) = own, its  # noqa: E741
    equal = s + d + i == S + D + I
    traded = s - S >= 3 and d + i < D + I and 3 * (D + I - d - i) <= 4 * (s - S)
    return sum(own[:3]) == sum(its[:3]) and (equal or traded)


def counts(report):
    rates = report.scores["word"].utterances.values()
    return [(r.hits, r.substitutions, r.deletions, r.insertions) for r in rates]


def disturbed(rng, words, much):
    """Words with errors."""
    found = [w if rng.random() > much else rng.choice(["a", "B", ""]) for w in words]
    return [w for word in found for w in [word] * (1 + (rng.random() < much / 2)) if w]


def transcripts(folder, references, hypotheses):
    files = folder / "r.trn", folder / "h.trn"
    for file, texts in zip(files, (references, hypotheses), strict=True):
        file.write_text("".join(f"{' '.join(t)} (s-{n:03d})\n" for n, t in enumerate(texts)))
    return files


@needs_sclite
@each("much", [0.1, 0.6])
def test_transcripts_have_the_totals_of_sclite(tmp_path, much):
    rng = np.random.default_rng(1)
    texts = [list(rng.choice(list("abcdeAB"), rng.integers(1, 12))) for _ in range(300)]
    files = transcripts(tmp_path, texts, [disturbed(rng, text, much) for text in texts])
    own, its = counts(score(*files, "word")), sclite(*files)
    assert len(its) == 300 and all(map(agree, own, its))
    assert sum(sum(c[1:]) for c in own) == sum(sum(c[1:]) for c in its)


@needs_sclite
def test_totals_differ_where_sclite_trades_substitutions(tmp_path):
    """Five substitutions weigh 20; three words left out, two right and three invented weigh 18."""
    files = transcripts(tmp_path, ["pqrXY"], ["XYabc"])
    own, its = counts(score(*files, "word")), sclite(*files)
    assert (own, its) == ([(0, 5, 0, 0)], [(2, 0, 3, 3)]) and agree(own[0], its[0])


@needs_sclite
@each("seed, overlap", [(0, 0), (1, 0), (2, 6), (3, 6)])
def test_words_with_times_have_the_counts_of_sclite(tmp_path, seed, overlap):
    """Middles fall on the ends of segments, between and after them; some segments aren't scored.

    Or overlap with those of the other speaker, whose times may be the same.
    """
    rng, stm, ctm = np.random.default_rng(seed), [], []
    scored = {"x": [], "y": []}  # segments of a speaker, as sclite lists them
    for channel in "AB":
        time = 0.0
        for n in range(30):
            end = time + rng.integers(1, 9) / 8
            words = list(rng.choice(list("abcde"), rng.integers(1, 5)))
            text = "IGNORE_TIME_SEGMENT_IN_SCORING" if rng.random() < 0.2 else " ".join(words)
            speaker = "xy"[n % 2 if overlap else 0]
            stm.append(f"f {channel} {speaker} {time} {end} {text}\n")
            if text.islower():
                scored[speaker].append(sum(map(len, scored.values())))
            for word in disturbed(rng, words, 0.2):
                begin, duration = time + rng.integers(-2, 6) / 8, rng.integers(0, 5) / 8
                ctm.append((channel, max(0.0, begin), duration, word))
            time = max(time, end + rng.integers(-overlap, 3) / 8)
    ctm = [f"f {c} {b} {d} {w}\n" for c, b, d, w in sorted(ctm, key=lambda word: word[:2])]
    for name, lines in (("r.stm", stm), ("h.ctm", ctm)):
        (tmp_path / name).write_text("".join(lines))
    files = tmp_path / "r.stm", tmp_path / "h.ctm"
    report, its = score(*files, "word"), sclite(*files)
    own = [counts(report)[n] for part in scored.values() for n in part]
    assert any(name.endswith("-2") for name in report.texts["ref"]) == (overlap > 0)
    assert len(its) > 40 and [sum(c[:3]) for c in own] == [sum(c[:3]) for c in its]
    assert [c[0] + c[1] + c[3] for c in own] == [c[0] + c[1] + c[3] for c in its]  # as many words
    assert all(map(agree, own, its))


@each(
    "own, its, good",
    [
        ((2, 1, 0, 0), (1, 2, 0, 0), False),
        ((2, 1, 1, 1), (2, 2, 0, 0), False),
        ((0, 5, 0, 0), (3, 0, 2, 2), True),
        ((0, 2, 0, 0), (1, 0, 1, 1), True),  # another alignment of as many errors
        ((0, 3, 0, 0), (0, 1, 2, 2), False),
    ],
)
def test_the_judge_refuses_wrong_counts(own, its, good):
    assert agree(own, its) == good


def written(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return [folder / name.replace("_", ".") for name in files]


def test_words_belong_to_segments_by_their_middles(tmp_path):
    """A word on the end of a segment is the next one's, one after the last is the last's; a gap's counts nowhere."""
    ctm = "f A 0 1.9 GO .9\nf A 1.5 1 ON\nf A 2.6 .2 JUNK\nf A 2.9 .2 UP\nf A 9 1 DOWN\nf B 0 1 RIGHT\n"
    texts = score(*written(tmp_path, r_stm=STM, h_ctm=ctm), "word").texts
    assert texts["hyp"] == {"f-A-0.0-2.0": "GO", "f-A-3.0-5.0": "UP DOWN", "f-B-0.0-1.0": "RIGHT"}
    assert [*texts["ref"]] == [*texts["hyp"]]


def test_a_channel_without_words_is_missing_and_a_strange_one_refused(tmp_path):
    stm, ctm, strange = written(tmp_path, r_stm=STM, h_ctm="f B 0 1 LEFT\n", o_ctm="g A 0 1 LEFT\n")
    refused(r"2 missing \(f-A-0.0-2.0, f-A-3.0-5.0\)", score, stm, ctm)
    assert score(stm, ctm, "word", missing="deletions").scores["word"].total.deletions == 5
    refused(r"doesn't have \(g-A\)", score, stm, strange)


def test_every_format_scores_alike(tmp_path):
    """Without segments, the words of a file are one text; where it has two channels, of each of them.

    Packed by gzip or not.
    """
    files = written(
        tmp_path,
        a_trn=";; note\nGO  ON (a)\n(b-1)\nUP (b-2)\n",
        b_txt="a\tGO ON\nb-1\nb-2\tUP\n",
        text="b-2 UP\na  GO ON\nb-1\n",
        c_ctm="a 1 1 1 ON\na 1 0 1 GO .5\nb 2 0 1 UP\n",
        d_json='{"id": "a", "text": "GO ON"}\n{"id": "b-1", "text": ""}\n{"id": "b-2", "text": "UP"}\n',
        r_stm=STM,
    )
    for file in files:
        Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
    a, b, text, c, d, stm = files
    expected = {"a": "GO ON", "b-1": "", "b-2": "UP"}
    for gz in ("", ".gz"):
        for file in (a, b, text, d):
            ref = {"a": "GO", "b-1": "X", "b-2": "UP"}
            assert score(ref, f"{file}{gz}").texts["hyp"] == expected
        assert score({"a": "GO", "b": "UP"}, f"{c}{gz}").texts["hyp"] == {"a": "GO ON", "b": "UP"}
        assert translations.read_lines(f"{d}{gz}") == list(expected.values())
        refused(r"missing \(f-A-0.0-2.0, f-A-3.0-5.0, f-B-0.0-1.0", score, f"{stm}{gz}", f"{c}{gz}")
    both = written(tmp_path, d_ctm="b 1 0 1 GO\nb 2 0 1 UP\n")[0]
    assert score({"b-1": "GO", "b-2": "UP"}, both).texts["hyp"] == {"b-1": "GO", "b-2": "UP"}
