"""Prove what a translator is used for: lines in, translations out, scores, pictures; and what is refused."""

import gzip
import io
import json
import random
import unicodedata
from importlib import import_module
from queue import Queue

import pytest
import spoken
import torch
from miniatures import write
from pytest import approx
from refusals import refused
from runs import (
    Stop,
    status_of,
    train,
)
from searches import Functions
from small import PART, each, rows, slow

from asr import api, config, tasks
from asr.cli import decode, plot, prepare, score
from asr.cli import tokenizer as tokenizers
from asr.data.texts import Text
from asr.errors import UserError
from asr.journal import Journal
from asr.models import translator as translators
from asr.models.lm import FolderSettings, LanguageModel, LMSettings
from asr.preflight.check import check
from asr.scoring.translation import score_translations
from asr.text import tokenizer
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher
from asr.translation import attention
from asr.translation import translate as translation
from asr.translation.translate import translate
from scripts import letters

# what is wrong

PAIRS = {
    "a": ("x\ny\n", "x\n"),
    "b": ("x\n \n", "x\ny\n"),
    "c": ("x\n", "x\x07\n"),
    "d": ("x" * 10001, "y"),
    "e": ("\n", " \n"),
    "f": ("x\ny\n", "x\n - !\n"),
}


@pytest.fixture(scope="module")
def faulty(lettered):
    lines = (lettered / "dev.src").read_text().splitlines()
    write(lettered / "short.src", ["a", "b"])
    write(lettered / "empty.src", [lines[0], "", *lines[2:]])
    write(lettered / "strange.tgt", ["x", *["a"] * 39])
    write(lettered / "half.tsv", ["a\tb", "b\t"])
    write(lettered / "columns.tsv", ["a\tb", "a\tb\tc"])
    write(lettered / "long", ["a", "b" * 1100])
    (lettered / "bytes").write_bytes(b"\xff\n")
    (lettered / "sound").write_bytes(b"RIFF\xff\xff")
    write(lettered / "gap", ["a", "", "b"])
    write(lettered / "none", [])
    write(lettered / "table", ["a", "b\tc"])
    write(lettered / "lm/config.yaml", ["model: {kind: lm}"])
    (lettered / "pairs").mkdir()
    for name, sides in PAIRS.items():
        for language, text in zip(("en", "de"), sides, strict=True):
            (lettered / f"pairs/{name}.{language}").write_text(text)
    return lettered


MISTAKES = r"""
data.dev=[short.src,dev.tgt]   | short.src and .*dev.tgt: got 2 and 40 lines, expected as many
data.dev=[empty.src,dev.tgt]   | empty.src:2: empty, but line 2 of .*dev.tgt isn't \(1 such lines\)
data.dev=[dev.src,strange.tgt] | strange.tgt:1: character 'x' \(U\+0078\)
data.dev=half.tsv              | half.tsv:2: empty, but one column isn't \(1 such lines\)
data.dev=columns.tsv           | columns.tsv:2: got 3 columns, expected 2
data.dev=[dev.src]             | dev.src:1: got 1 columns, expected 2
data.dev=[a,b,c]               | data.dev: got \['a', 'b', 'c'\], expected \[source, target\]
data.train=[no.src,dev.tgt]    | no.src: no such text file
model.encoder.subsampling=4    | encoder.subsampling: got 4, expected 1
model.source=speech            | model.source: got 'speech', expected: 'text'
source_tokenizer=other         | model.shared: the tokens of the two languages differ
source_tokenizer=nowhere       | nowhere/tokenizer.json: no tokenizer here
model.decoder.d_model=64       | shared: got encoder.d_model = 32 and decoder.d_model = 64
"""


@each("override, message", rows(MISTAKES))
def test_mistakes_are_told_before_anything_is_made(
    faulty, tmp_path, monkeypatch, override, message
):
    monkeypatch.chdir(faulty)
    refused(message, train, faulty, tmp_path / "x", override)
    assert not (tmp_path / "x").exists()


def test_the_check_before_training_finds_what_training_refuses(faulty, tmp_path):
    change = f"data.dev=[{faulty}/short.src,{faulty}/dev.tgt]"
    report = check(config.load(tasks.Experiment, faulty / "x.yaml", [change]))
    assert report.refused and "got 2 and 40 lines" in report.text()
    (tmp_path / "test").write_text("".join(f"{word}\tabc\n" for word in ("xa", "bcd", "zz")))
    report = check(config.load(tasks.Experiment, faulty / "x.yaml"), [str(tmp_path / "test")])
    assert not report.refused and report.prediction.examples == 300
    [found] = (p for p in report.problems if p.stops or p.role == "test")
    assert (found.role, found.count, found.of) == ("test", 2, 3)


# commands


def decoded(model, source, options=""):
    """Call asr-decode."""
    decode.main(f"--model {model} {source} {options}".split())


def test_lines_come_back_in_order_and_each_as_if_alone(translator, lettered, monkeypatch):
    """Whatever shares its batch and its window, to rounding; an empty line stays empty."""
    model = translators.load(translator[0])
    lines = ["abc", "", "hgfedcba" * 5, "a", "  ", *(lettered / "dev.src").read_text().split()]
    texts = [Text(f"x:{n}", n, line) for n, line in enumerate(lines, 1)]
    options = SearchOptions("attention", beam=4, nbest=3, length_norm=0.6)
    together = list(translate(model, texts, options))
    assert [found.id for found in together] == [text.where for text in texts]
    assert together[1].text == together[4].text == ""
    alone = [found for text in texts for found in translate(model, [text], options)]
    monkeypatch.setitem(translation.WINDOW, "cpu", 7)
    monkeypatch.setitem(translation.BATCH_TOKENS, "cpu", 40)
    for other in (alone, translate(model, texts, options)):
        for one, same in zip(together, other, strict=True):
            assert [a.tokens for a in one.nbest] == [a.tokens for a in same.nbest]
            scores = [a.score for a in same.nbest]
            assert [a.score for a in one.nbest] == approx(scores, abs=1e-4)


def test_python_translates_in_one_call(translator):
    plain, empty = api.translate(translator[0], ["abc", ""], beam=3)
    model = translators.load(translator[0])
    [same] = api.translate(model, ["abc"], beam=3)
    assert (plain.id, plain.text, empty.text) == ("line 1", same.text, "")
    wrong = [("abc", {}, "lines"), (["abc"], {"mode": "ctc"}, "mode")]
    wrong += [(["abc"], {name: 0.5}, name) for name in ("chunk", "ctc_weight")]
    for lines, more, argument in wrong:
        with pytest.raises(UserError) as error:
            api.translate(translator[0], lines, **more)
        assert error.value.argument == argument
    refused("got a Translator, expected a Recognizer", api.transcribe, model, "x.wav")
    refused("got a Linear, expected a Translator", api.translate, torch.nn.Linear(1, 1), ["a"])


@pytest.fixture
def type_in(monkeypatch):
    """Write on standard input."""
    return lambda text: monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()))
    )


def test_the_command_reads_standard_input_or_files(translator, lettered, tmp_path, capsys, type_in):
    given = "abc\n\n" + (lettered / "dev.src").read_text()
    type_in(given)
    decoded(translator[0], "")
    printed, told = capsys.readouterr()
    _, empty, *lines = printed.splitlines()
    assert not empty and "41 lines translated, 1 without a token" in told
    texts, table = tmp_path / "x.txt", tmp_path / "x.json"
    decoded(translator[0], lettered / "dev.src", f"--out {texts} --json {table} --nbest 2")
    assert texts.read_text().splitlines() == lines
    found = [json.loads(line) for line in table.read_text().splitlines()]
    assert [one["text"] for one in found] == lines and found[-1]["id"] == f"{lettered}/dev.src:40"
    for one in found:
        best, second = one["nbest"]
        assert best["score"] >= second["score"]


def test_finished_work_is_not_repeated(translator, lettered, tmp_path, capsys, type_in):
    for option, message in (
        ("", "40 lines translated"),
        ("", "is up to date"),
        ("--length-norm 1", "40 lines translated"),
    ):
        decoded(translator[0], lettered / "dev.src", f"--out {tmp_path}/x {option}")
        assert message in capsys.readouterr().err
    for line in ("a\n", "b\n"):  # standard input is another one each time
        type_in(line)
        decoded(translator[0], "", f"--out {tmp_path}/y")
        assert "1 lines translated" in capsys.readouterr().err
    for _ in range(2):  # what is printed is printed again
        decoded(translator[0], lettered / "dev.src", f"--json {tmp_path}/z")
        assert len(capsys.readouterr().out.splitlines()) == 40


@each(
    "change, again", [("", [8, 16, 9]), ("lines", [1, 8, 16, 9]), ("options", [1, 2, 4, 8, 16, 9])]
)
def test_a_killed_translation_goes_on_to_the_same_bytes(
    translator, lettered, tmp_path, monkeypatch, change, again
):
    """Killed within a write; what is finished is not searched again, unless options or its lines are others."""
    source = tmp_path / "src"
    source.write_text((lettered / "dev.src").read_text())
    outputs = tmp_path / "x", tmp_path / "x.json"
    how = f"--out {outputs[0]} --json {outputs[1]} --nbest 2"
    journal, searched, stop_at, search = tmp_path / ".x.journal", [], 4, translation.search

    def counted(searcher, window):
        if len(searched) == stop_at:
            raise Stop
        searched.append(len(window))
        return search(searcher, window)

    monkeypatch.setattr(translation, "search", counted)
    pytest.raises(Stop, decoded, translator[0], source, how)
    journal.write_bytes(journal.read_bytes()[:-9])
    assert searched == [1, 2, 4, 8] and not any(path.exists() for path in outputs)
    searched, stop_at = [], None
    if change == "lines":
        source.write_text("abc\n" + source.read_text().split("\n", 1)[1])
    how += " --length-norm 1" * (change == "options")
    decoded(translator[0], source, how)
    found = [path.read_bytes() for path in outputs]
    assert searched == again and not journal.exists()
    for option in (" --beam 9", ""):
        decoded(translator[0], source, how + option)
    assert found == [path.read_bytes() for path in outputs]


REFUSALS = r"""
decode  | --model {m} {r}/dev.src --channel 1        | --channel: got 1, but {m} is a translator
decode  | --model {m} {r}/dev.src --chunk 0.6        | --chunk: got '0.6', but {m} is a translator
decode  | --model {m} {r}/dev.src --stream           | --stream: got True, but
decode  | --model {m} {r}/dev.src --mode ctc         | --mode: got 'ctc', expected attention
decode  | --model {m} {r}/no.src                     | {r}/no.src: no such file
decode  | --model {m} {r}/long                       | {r}/long:2: got 1100 tokens, expected 1024
decode  | --model {m} {r}/bytes                      | {r}/bytes:1: not UTF-8
decode  | --model {m} {r}/dev.src --tune beam=1      | --tune: needs texts and their --reference
decode  | --model {m} {r}/gap --tune beam=1 --reference {r}/gap | {r}/gap:2: empty, expected a translation
decode  | --model {m} {r}/sound                      | {r}/sound:1: is sound; expected text
decode  | --model {l}                                | nothing to transcribe; {l} is no translator
decode  | --model {m} {r}/dev.src --reference {r}/x  | --reference: is for --tune
decode  | --model {m} {r}/dev.src --out {r}/dev.src  | --out {r}/dev.src: is an input
decode  | --model {l} {r}/dev.src --reference {r}/x  | --reference: is for translators
decode  | --model {m} {r}/dev.src --lm-weight 0.7     | --lm-weight: changes nothing without --lm
decode  | --model {m} {r}/dev.src --hotword-weight 3  | --hotword-weight: changes nothing without --hotwords
decode  | --model {m} {r}/dev.src --nbest 3           | --nbest: changes nothing without --json
decode  | --model {m} {r}/dev.src --mode attention-greedy --beam 3 | --beam: changes nothing in mode attention-greedy
decode  | --model {m} {r}/dev.src --mode attention-greedy --length-norm 1 | --length-norm: changes nothing in mode
decode  | --model {m} {r}/dev.src --out {r}/out.gz    | --out: {r}/out.gz would be plain text
decode  | --model {m} {r}/table                       | {r}/table:2: has a tab
decode  | --model {l} {r}/dev.src                     | {r}/dev.src: text, not sound, and {l} is no translator
plot    | --model {m} {r}/dev.src --ctc-weight 1 --out x | --ctc-weight: changes nothing for a translator
plot    | --model {m} {r}/dev.src --lm-weight 1 --out x | --lm-weight: changes nothing without --lm
plot    | --model {l} {r}/dev.src --line 1 --out x    | --line: is for a translator's texts
score   | {r}/table {r}/table --bleu                  | {r}/table:2: has a tab
decode  | --model {m} {r}/dev.src --tokenize none     | --tokenize: is for --tune
decode  | --model {l} {r}/dev.src --lowercase         | --lowercase: is for translators
plot    | --model {m} {r}/dev.src --mode ctc --out x  | --mode: got 'ctc', expected attention
plot    | --model {m} {r}/dev.src --line 99 --out x  | {r}/dev.src: has no line 99
score   | {r}/dev.tgt {r}/long --bleu                | {r}/long: got 2 lines, expected 40
score   | {r}/gap {r}/gap --bleu                     | {r}/gap:2: empty
score   | {r}/none {r}/none --bleu                   | {r}/none: has no lines
score   | {r}/gap {r}/gap --bleu --tokenize klingon  | --tokenize: got 'klingon'
score   | {r}/gap {r}/gap --bleu --unit word         | --unit: is for error rates
score   | {r}/gap {r}/gap --lowercase                | --tokenize, --lowercase: are for --bleu
prepare | parallel {r}/pairs {r}/out                 | --languages: got none, expected two
prepare | parallel {r}/pairs {r}/out --languages x y | {r}/pairs: no split has files of both
prepare | parallel {r}/pairs {r}/out --languages en de --splits a | {r}/pairs/a.de: got 1 lines, but
prepare | parallel {r}/pairs {r}/out --languages en de --splits b | {r}/pairs/b.en:2: empty, but
prepare | parallel {r}/pairs {r}/out --languages en de --splits c | {r}/pairs/c.de:1: the text has a control
prepare | parallel {r}/pairs {r}/out --languages en de --splits d | {r}/pairs/d.en:1: got 10001 characters
prepare | parallel {r}/pairs {r}/out --languages en de --splits e | {r}/pairs/e.de: have no pair of sentences
prepare | parallel {r}/pairs {r}/out --languages en de --splits f --normalize plain | f.de:2: normalization leaves
prepare | parallel {r}/pairs {r}/out --languages en de --splits q | --splits: got 'q', no such split
prepare | parallel {r}/pairs {r}/out --languages en de --dev 5    | --dev: is for recordings
prepare | tsv {r}/pairs {r}/out --languages en de    | --languages: is for parallel texts
"""


@each("name, arguments, message", rows(REFUSALS))
def test_refusals(translator, faulty, stderr, name, arguments, message):
    words = {"m": translator[0], "r": faulty, "l": faulty / "lm"}
    command = import_module(f"asr.cli.{name}").main
    assert status_of(command, *arguments.format(**words).split()) == 2
    assert message.format(**words) in stderr().splitlines()[-1]
    assert not (faulty / "out").exists()


def test_a_recognizer_does_not_translate_nor_the_other_way_round(translator, lettered, tmp_path):
    refused("holds a translator .*, expected a recognizer", api.load, translator[0], "cpu")
    lm, folder = LMSettings(**PART | {"kind": "lm"}), tmp_path / "lm"
    other = tokenizer.train("characters", ["abcdefgz"])
    LanguageModel(lm, other).save(folder, config.dump(FolderSettings(model=lm)))
    refused("holds a language model .*, expected a translator", translators.load, folder)
    options = SearchOptions("attention", lm=str(folder))
    found = translate(translators.load(translator[0]), [Text("x", 1, "a")], options)
    refused("a language model of other tokens than the model's", next, found)


def test_a_recognizer_is_asked_to_translate(short, tmp_path, stderr):
    folder, line = spoken.write_folder(tmp_path, short) / "model", write(tmp_path / "x", ["a"])
    refused("holds a recognizer .*, expected a translator", translators.load, folder)
    assert status_of(decode.main, "--model", folder, line) == 2
    assert f"{line}: text, not sound, and {folder} is no translator" in stderr()


def test_a_language_model_of_the_target_joins_the_search(translator, tmp_path):
    """Totals are the decoder's and the weighted language model's, each computed by itself."""
    model = translators.load(translator[0])
    torch.manual_seed(7)
    other = LanguageModel(LMSettings(**PART | {"kind": "lm"}), model.tokenizer)
    other.save(tmp_path, config.dump(FolderSettings(model=LMSettings(**PART | {"kind": "lm"}))))
    [found] = api.translate(model, ["abcab"], beam=6, nbest=4, lm=str(tmp_path), lm_weight=0.6)
    X = torch.tensor([model.source_tokenizer.encode("abcab")])
    totals = []
    for one in found.nbest:
        Y, Y_lens = torch.tensor([one.tokens], dtype=torch.long), torch.tensor([len(one.tokens)])
        targets = torch.tensor([*one.tokens, model.model.sos_eos])
        logits = model.model(X, torch.tensor([5]), Y, Y_lens), other.eval().model(Y, Y_lens)
        parts = [x[0].log_softmax(1)[range(len(targets)), targets].sum() for x in logits]
        totals.append(float(parts[0] + 0.6 * parts[1]))
    assert len(totals) == 4 and [one.score for one in found.nbest] == approx(totals, abs=1e-4)


def test_a_translation_may_repeat_itself(translator):
    """A decoder that is sure of 30 equal labels gets them all; a recognizer's guard against loops would stop it."""
    model = translators.load(translator[0])
    searcher, end = Searcher(model, SearchOptions("attention", beam=2)), model.model.sos_eos

    def sure(b, labels):
        wanted = 2 if len(labels) < 30 else end
        return [0.0 if label == wanted else -20.0 for label in range(end + 1)]

    searcher.scorers = lambda: {"attention": (Functions(sure, True), 1.0)}
    [[best]] = searcher.search(torch.zeros(1, 9, 1), torch.tensor([9]))
    assert (best.tokens, best.reason, best.score) == ([2] * 30, "end", 0.0)


def test_a_line_does_not_wait_for_the_next(translator):
    """One who writes a line at a time reads each translation before writing the next line."""
    lines, model, options = ["abc", "ab", "", "cab"], translator[0], SearchOptions("attention")
    given, taken = Queue(), []
    texts = (Text(f"x:{n}", n, line) for n, line in enumerate(iter(given.get, None), 1))
    with Journal(None, {}) as journal:
        given.put(lines[0])
        found = translation.journaled(
            translators.load(model), texts, options, "fp32", journal, True
        )
        for line, key in zip([*lines[1:], None], found, strict=True):
            taken += [one["text"] for one in journal.get(key)["lines"]]
            given.put(line)
    assert taken == [one.text for one in api.translate(model, lines)]


def test_windows_take_what_has_come_and_tell_errors():
    texts = [Text(f"x:{n}", n, "a") for n in range(50)]
    windows = [*translation.arrived(iter(texts), 7)]
    assert [text for window in windows for text in window] == texts
    assert max(map(len, windows)) <= 7

    def broken():
        yield texts[0]
        raise UserError("damaged")

    found = translation.arrived(broken(), 7)
    assert next(found) == texts[:1]
    refused("damaged", next, found)


def test_a_table_of_pairs_has_a_tokenizer(tmp_path, stderr):
    table = write(tmp_path / "x.tsv", ["ab\tcd", "a\tde"])
    assert status_of(tokenizers.main, table, tmp_path / "x", "--kind", "characters") == 2
    assert "x.tsv:1: has a tab" in stderr()
    for side, letters_of in (("source", "ab"), ("target", "cde"), ("both", "abcde")):
        tokenizers.main(f"{table} {tmp_path}/{side} --side {side} --kind characters".split())
        made = tokenizer.load(tmp_path / side)
        assert not made.unknown(letters_of) and len(made.unknown("abcdefg")) == 7 - len(letters_of)


def test_characters_that_no_token_has_are_left_out(translator, stderr):
    model, options = translators.load(translator[0]), SearchOptions("attention")
    texts = [Text("x", 1, "añb"), Text("y", 2, "ab")]
    strange, plain = (found.text for found in translate(model, texts, options))
    assert strange == plain and "x: the tokenizer doesn't know 'ñ'; such" in stderr()


def test_prepared_texts_are_clean_and_packed_ones_the_same(tmp_path, stderr):
    write(tmp_path / "in/train.en", ["a  dog", "", "cafe\u0301 "])
    with gzip.open(tmp_path / "in/train.de.gz", "wt") as file:
        file.write("ein\tHund\n \nCafe\u0301\n")
    for message in ("train: 2 pairs, 3 and 3 words, 1 empty ones left out", "is up to date"):
        prepare.main(f"parallel {tmp_path}/in {tmp_path}/out --languages en de".split())
        assert message in stderr()
    assert (tmp_path / "out/train.en").read_text() == "a dog\ncafé\n"
    assert (tmp_path / "out/train.de").read_text() == "ein Hund\nCafé\n"


def test_scores_are_sacrebleu_s(tmp_path, capsys):
    sacrebleu = pytest.importorskip("sacrebleu")
    from sacrebleu.significance import PairedTest

    draw = random.Random(1)
    words = "A dog , runs over the Grass and THE man sees it ."
    ref = [" ".join(draw.choices(words.split(), k=9)) for _ in range(30)]
    hyp, other = ([" ".join(draw.sample(line.split(), n)) for line in ref] for n in (9, 4))
    paths = [
        str(write(tmp_path / name, lines))
        for name, lines in (("ref", ref), ("hyp", hyp), ("other", other))
    ]
    how = ["--bleu", "--tokenize", "none", "--lowercase", "--json", "-", "--against"]
    score.main([*paths[:2], *how, paths[2]])
    found = json.loads(capsys.readouterr().out)
    bleu, how = found["bleu"], {"tokenize": "none", "lowercase": True}
    best, least = (sacrebleu.corpus_bleu(lines, [ref], **how).score for lines in (hyp, other))
    chrf = sacrebleu.CHRF(lowercase=True).corpus_score(hyp, [ref]).score
    scores = bleu["score"], found["chrf"]["score"], bleu["difference"]
    assert scores == approx((best, chrf, best - least))
    assert bleu["p"] < 0.01 and bleu["low"] < best < bleu["high"] and found["lines"] == 30
    for metric, its in (
        (sacrebleu.BLEU(**how), bleu),
        (sacrebleu.CHRF(lowercase=True), found["chrf"]),
    ):
        width = metric.corpus_score(hyp, [ref], n_bootstrap=1000)._ci  # half of it
        assert (its["high"] - its["low"]) / 2 == approx(width, abs=1e-9)
        named = [("other", other), ("hyp", hyp)]
        paired = PairedTest(named, {"x": metric}, [ref], test_type="bs", n_samples=1000)()[1]
        assert its["p"] == approx(
            next(rows[1].p_value for name, rows in paired.items() if name != "System")
        )
    assert "|case:lc|eff:no|tok:none|" in bleu["signature"]
    score.main([*paths[:2], "--bleu"])
    cased = sacrebleu.corpus_bleu(hyp, [ref]).score
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"BLEU {cased:.2f} [") and "|case:mixed|eff:no|tok:13a|" in first


WEAK = [*[""] * 18, "der Hund", "geht über Gräser"]


@each("hyp", [WEAK, ["x"] * 18 + WEAK[18:]], ids=["empty lines", "no match"])
def test_intervals_of_weak_systems_are_possible_scores(tmp_path, hyp):
    pytest.importorskip("sacrebleu")
    reference = write(tmp_path / "ref", ["der Hund geht über Gräser"] * 20)
    for metric in score_translations(reference, write(tmp_path / "hyp", hyp)).metrics.values():
        assert 0 <= metric.low <= metric.score <= metric.high <= 100


def test_a_system_does_not_differ_from_itself_nor_from_its_decomposed_form(tmp_path):
    pytest.importorskip("sacrebleu")
    text = "der Hund läuft über das grüne Gras\nzwei Männer spielen im Hof\n"
    for form in ("NFC", "NFD"):
        (tmp_path / form).write_text(unicodedata.normalize(form, text), encoding="utf-8")
    found = score_translations(tmp_path / "NFC", *[tmp_path / "NFD"] * 2, tokenize="none").metrics
    assert all((m.score, m.p) == (approx(100), 1) for m in found.values())


def test_tuning_prints_the_bleu_of_each_setting(translator, lettered, tmp_path, capsys):
    """As asr-score finds it of what asr-decode writes."""
    given = translator[0], lettered / "dev.src"
    decoded(*given, f"--tune length-norm=0,2 --reference {lettered}/dev.tgt")
    printed, told = capsys.readouterr()
    decoded(*given, f"--length-norm 2 --out {tmp_path}/x")
    score.main(f"{lettered}/dev.tgt {tmp_path}/x --bleu".split())
    bleu = capsys.readouterr().out.split()[1]
    assert printed.splitlines()[1] == f"{bleu}\t--length-norm 2.0" and "best: --length-norm" in told


def test_attention_is_drawn_source_by_target(translator, lettered, tmp_path, capsys):
    path, image = lettered / "dev.src", tmp_path / "x.png"
    plot.main(f"--model {translator[0]} {path} --line 3 --out {image}".split())
    where, text = capsys.readouterr().out.rstrip("\n").split("\t")
    assert image.read_bytes()[:4] == b"\x89PNG" and where == f"{path}:3"
    line = Text(where, 3, path.read_text().splitlines()[2])
    seen = attention.observe(translators.load(translator[0]), line, SearchOptions("attention"))
    assert seen.attention.shape == (1, 2, len(text) + 1, len(line.text) + 1) and seen.text == text
    assert ["".join(side[:-1]) for side in (seen.source, seen.target)] == [line.text, text]
    assert seen.attention.sum(3) == approx(1, abs=1e-5)


@slow
def test_letters_are_reversed(tmp_path):
    """All held-out words of the lengths of the training come out right."""
    lengths = range(letters.LEAST, letters.MOST + 1)
    found = dict(letters.right(tmp_path, letters.TURN["reverse"], lengths))
    assert found == dict.fromkeys(lengths, letters.EACH)
