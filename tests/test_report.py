"""asr-score --report: alignments by their laws, groups by brute force, and the page by a parser and a browser.

Texts of strangers try to become HTML in every place: id, text, speaker, names of files.
"""

import base64
import hashlib
import json
import math
import re
import subprocess
from functools import partial
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from shutil import which
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile
from runs import status_of
from small import each, rows, slow

from asr.cli import score as command
from asr.data import manifest
from asr.data.manifest import Utterance
from asr.scoring import score
from asr.scoring.error_rate import ErrorRate, alignments, error_rates
from asr.scoring.page import evidence, is_page, page
from asr.scoring.page.evidence import Exhibit, Reading, located
from asr.transcript import Segment, Transcript, Word

ATTACK = "<script>document.title='owned'</script>\"'><img src=x onerror=document.title='owned'>"
BROWSER = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), "")
RNG = np.random.default_rng(1)
# utterance | its file | start | text | speaker
UTTERANCES = """
    u0     | a b#0 | 0.5 | GO ON UP  | ann
    ATTACK | a b#1 | 0.0 | GO ATTACK | ATTACK
    u2     | gone  | 0.0 | UP UP     | ann
"""
# a system's file | utterance | start, text and confidence of each word
HEARD = """
    h.json | u0     | 0.6 GO 0.9 | 1.0 IN 0.4 | 1.4 THERE 0.3
    h.json | ATTACK | 0.1 GO 0.8
    h.json | u2     | 0.0 UP 0.9 | 1.0 UP 0.9
    o.json | u0     | 0.6 GO 0.9
    o.json | ATTACK
    o.json | u2     | 0.0 ATTACK 0.9
"""


def sentences(count, vocabulary="A B C D E"):
    words = vocabulary.split()
    return [" ".join(RNG.choice(words, RNG.integers(1, 9))) for _ in range(count)]


def spoken(id, *words):
    """A transcript: words are "start text confidence", each 0.3 s long."""
    made = []
    for start, text, known in map(str.split, words):
        text = text.replace("ATTACK", ATTACK)
        made.append(Word(float(start), float(start) + 0.3, text, float(known)))
    text = " ".join(word.text for word in made)
    segments = [Segment(made[0].start, made[-1].end, text, math.nan, tuple(made))] if made else []
    return Transcript(id.replace("ATTACK", ATTACK), text, tuple(segments))


def report(*words, out="page.html"):
    """Run asr-score --report in the current folder; the page."""
    assert status_of(command.main, *words, "--report", out) == 0
    return Page(Path(out).read_text("utf-8"))


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A test set of three utterances, one of them hostile, and two systems; run asr-score --report on it."""
    monkeypatch.chdir(tmp_path)
    waves, rate = (0.003 * RNG.standard_normal((2, 32_000))).cumsum(1), 16_000
    for n, wave in enumerate(waves):
        soundfile.write(f"a b#{n}.wav", np.clip(wave, -1, 1), rate)
    utterances = []
    for name, file, start, *said in rows(UTTERANCES.replace("ATTACK", ATTACK)):
        facts = rate, 2 * rate, 1, float(start), 2 - float(start)
        utterances.append(Utterance(name, f"{tmp_path}/{file}.wav", *facts, *said))
    manifest.write("r.jsonl.gz", utterances)
    for name, *heard in rows(HEARD):
        with open(name, "a", encoding="utf-8") as file:
            print(json.dumps(spoken(*heard).as_json(), ensure_ascii=False), file=file)
    return partial(report, "r.jsonl.gz", "h.json")


class Page(HTMLParser):
    """Elements of a page with their attributes, what stands in them before others, and its text."""

    def __init__(self, source):
        super().__init__()
        self.source, self.elements, self.inline, self.text, self.open = source, [], {}, "", ""
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.open = tag
        self.inline.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        self.open = ""

    def handle_data(self, data):
        if self.open:
            self.inline[self.open][-1] += data
        self.text += data

    def tags(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def utterances(self):
        return {one["id"]: one for one in json.loads(self.inline["script"][0])["utterances"]}


# what is shown


@each("unit", ["word", "char", "mixed"])
def test_alignments_hold_all_units_in_order_and_count_as_the_error_rate(unit):
    texts = sentences(40, "GO ON 我用 I'M 天")
    others = [*sentences(38, "GO 我 OFF 天"), "", texts[-1]]
    made, rates = (of(texts, others, unit) for of in (alignments, error_rates))
    for pairs, rate, *both in zip(made, rates, texts, others, strict=True):
        for n, text in enumerate(both):
            joined = " ".join(pair[n] for pair in pairs if pair[n] is not None)
            assert joined == text or unit != "word"
            assert joined.replace(" ", "") == text.replace(" ", "")
        assert evidence.count(pairs) == rate


@each("units, words, unit, places", rows("""
    GO,ON   | GO,ON  | word  | 0, 1
    GO      | GO,    | word  | 0
    GO,ON   | GO ON  | word  | 0, 0
    我,用,X | 我用,X | mixed | 0, 0, 1
    GO,ON   | GO,OFF | word  | None, None
    G,O, ,A | GO,A   | char  | 0, 0, None, 1
"""))  # fmt: skip
def test_units_are_parts_of_words(units, words, unit, places):
    """Also of which a convention leaves nothing."""
    assert str(located(units.split(","), words.split(","), unit)) == f"[{places}]"


def test_a_word_is_right_if_all_of_its_units_are():
    heard = spoken("a", "0 我门 0.1", "1 go! 0.2", "2 in 0.3", "3 Up nan")
    plain = {"ref": {"a": "我们 GO UP"}, "hyp": {"a": "我门 GO IN UP"}}
    given = plain, "mixed", {}, [{"a": heard}]
    ([reading],) = (e.readings for e in evidence.exhibits(*given, lambda t: t.upper().strip("!")))
    assert reading.outcomes() == [(0.1, False), (0.2, True), (0.3, False)]
    assert reading.confidence == pytest.approx(0.2)
    ([reading],) = (e.readings for e in evidence.exhibits(*given))  # these words aren't the text
    assert reading.outcomes() == [] and reading.confidence is None


def shown(errors, values):
    """Utterances of ten words with these errors; values are their durations."""
    for n, (wrong, value) in enumerate(zip(errors, values, strict=True)):
        recording = Utterance(f"u{n}", "", 1, 1, 1, 0.0, value, "", speaker=f"s{n % 3}")
        rate = ErrorRate(10 - int(wrong), int(wrong), 0, 0)
        yield Exhibit(f"u{n}", recording, 0.0, value, (Reading(rate, ()), Reading(rate, ())))


def test_groups_divide_the_utterances_by_their_number():
    errors, values = RNG.integers(0, 5, 200), RNG.integers(1, 30, 200).astype(float)
    groups = evidence.by_value(list(shown(errors, values)), lambda one: one.duration, ".0f")
    assert 5 <= len(groups) <= 8 and sum(group.utterances for group in groups) == 200
    last = 0.0
    for group in groups:
        low, _, high = group.label.partition(" – ")
        low, high = float(low), float(high or low)
        inside = (values >= low) & (values <= high)
        rate, (bottom, top) = group.rates[0]
        assert low > last and group.utterances == inside.sum() and 12 <= inside.sum() <= 40
        assert rate == pytest.approx(errors[inside].mean() / 10) and bottom < rate < top
        assert group.rates[1][0] == rate
        last = high


def test_groups_of_what_is_not_known_and_of_few():
    few = list(shown([1, 0, 3, 2], [2.0, 0.0, 2.0, 1.0]))
    assert [g.label for g in evidence.by_value(few, evidence.speed, ".1f")] == ["5.0", "10.0"]
    assert evidence.by_value(few, lambda _: 1.0, ".0f") == []
    assert evidence.by_value(few, evidence.confidence, ".2f") == []
    groups = [(g.label, g.utterances, g.rates[0]) for g in evidence.by_speaker(few)]
    assert groups == [("s2", 1, (0.3, None)), ("s0", 2, (0.15, None)), ("s1", 1, (0.0, None))]
    assert evidence.by_speaker(few[:1]) == []


def test_frequent_errors_are_counted_by_system():
    ref, hyp = {"a": "A B", "b": "A B", "c": "C"}, {"a": "X B", "b": "X B D", "c": ""}
    texts = {"ref": ref, "hyp": hyp, "against": ref | {"c": "D C"}}
    assert evidence.frequent(evidence.exhibits(texts, "word", {}, [{}, {}]), 1) == {
        "substitutions": [(("A", "X"), [2, 0])],
        "deletions": [(("C", None), [1, 0])],
        "insertions": [((None, "D"), [1, 1])],
    }


def test_the_json_lines_of_a_decoding_score_as_its_texts_do(made):
    texts = {one.id: one.text for one in page.transcripts(Path("h.json"))}
    expected = score("r.jsonl.gz", texts).as_json()
    Path("h.json").rename("h.jsonl")
    assert score("r.jsonl.gz", "h.jsonl").as_json() == expected


# the page


def test_texts_of_strangers_become_no_elements(made):
    found = made("--against", "o.json")
    assert "owned" in found.text and ATTACK in found.utterances
    assert found.tags("img") == [] and len(found.tags("script")) == len(found.inline["script"]) == 3
    assert [tag for tag, given in found.elements if any(name[:2] == "on" for name in given)] == []
    assert ATTACK in [button.get("data-speaker") for button in found.tags("button")]
    edits = [json.loads(b["data-edit"]) for b in found.tags("button") if "data-edit" in b]
    assert {ATTACK.split()[0], "UP"} <= {text for edit in edits for text in edit}


def test_the_policy_allows_this_script_and_this_style_alone(made):
    found = made()
    (policy,) = [m["content"] for m in found.tags("meta") if "http-equiv" in m]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for tag in ("script", "style"):
        digest = hashlib.sha256(found.inline[tag][-1].encode()).digest()
        assert rules[f"{tag}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"


def test_a_page_shows_what_was_scored(made, capsys):
    found = made()
    shown = found.utterances["u0"]
    (reading,) = shown["readings"]
    pairs = [["GO", 0, 0.1, 0.9], ["ON", "IN", 0.5, 0.4], ["UP", "THERE", 0.9, 0.3]]
    facts = {"errors": 2, "length": 3, "pairs": pairs}.items()
    assert reading.items() >= facts and (shown["seconds"], shown["speaker"]) == (1.5, "ann")
    deleted = found.utterances[ATTACK]["readings"][0]["pairs"]
    assert deleted[0] == ["GO", 0, 0.1, 0.8] and all(pair[1] is None for pair in deleted[1:])
    line = capsys.readouterr().out.split(" %")[0]
    assert line in found.text and is_page(Path("page.html"))
    assert made(out="again.html").source == found.source


def test_the_sound_is_the_utterance(made):
    shown = made().utterances["u0"]
    kind, _, content = shown["sound"].partition(",")
    heard, rate = soundfile.read(BytesIO(base64.b64decode(content)))
    assert (kind, rate, shown["begin"]) == ("data:audio/mpeg;base64", 16_000, 0)
    assert np.corrcoef(heard, soundfile.read("a b#0.wav")[0][8000:])[0, 1] > 0.98


@each("name, value", [("EMBEDDED", 1), ("LONGEST", 1.4)])
def test_sound_that_is_not_embedded_is_linked(made, monkeypatch, capfd, name, value):
    """Of too many utterances, or of one of 1.5 s."""
    assert made().utterances["u2"]["sound"] == "gone.wav" and "sound of 1" in capfd.readouterr().err
    monkeypatch.setattr(page, name, value)
    Path("deep").mkdir()
    shown = made(out="deep/page.html").utterances["u0"]
    assert Path("deep", unquote(shown["sound"])).samefile("a b#0.wav")
    assert shown["begin"] == 0.5


def test_texts_alone_make_a_page_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("r", "A B"), ("h", "A C")):
        Path(name).write_text(f"u\t{text}\n")
    found = report("r", "h")
    assert found.utterances["u"]["readings"][0]["pairs"] == [["A", 0], ["B", "C"]]
    assert "Calibration" not in found.text and "speaker" not in found.text.split("Utterances")[1]


# in a browser


CLICKS = """
const states = [count.textContent];
const press = (selector) => {
  const all = [...document.querySelectorAll(selector)];
  all[0].click();
  states.push(count.textContent);
};
press('button[data-speaker="ann"]');
press("#only");
press("button.edit");
press("#only");
search.value = "there  go";
search.dispatchEvent(new Event("input"));
states.push(count.textContent);
const [player] = document.querySelectorAll("audio");
setTimeout(() => { document.body.dataset.at = player.currentTime; }, 1000);
document.querySelectorAll("button.pair")[2].click();
player.dispatchEvent(new Event("timeupdate"));
states.push(document.querySelectorAll(".pair").length, document.querySelector(".del, .ins, .sub").textContent);
document.body.dataset.states = JSON.stringify(states);
"""


def opened(source, script="", fragment="", allow=None):
    """Open a page in a headless browser, with a script of ours that its policy is made to allow; what it shows.

    No message may stand in its console: neither an error of a script nor one of the policy.
    """
    allow = allow or f"\\1 '{page.digest(script)}'"
    text = re.sub("(script-src '[^']*')", allow, source, count=1)
    copy = Path("opened.html").absolute()
    copy.write_text(f"{text}<script>{script}</script>", "utf-8")
    options = "--headless --no-sandbox --disable-gpu --dump-dom --enable-logging=stderr"
    options += " --autoplay-policy=no-user-gesture-required --virtual-time-budget=3000"
    command = [BROWSER, *options.split(), f"{copy.as_uri()}{fragment}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return Page(done.stdout)


@slow
@pytest.mark.skipif(not BROWSER, reason="no Chromium is installed: its script wasn't tried")
class TestBrowser:
    def test_search_and_buttons_find(self, made):
        found = opened(made().source, CLICKS)
        states = json.loads(found.tags("body")[0]["data-states"])
        assert states == [*[f"{n} of 3 utterances" for n in (3, 2, 3, 1, 3, 1)], 3, "IN"]
        # the third word begins 0.9 s into the utterance
        assert 0.84 < float(found.tags("body")[0]["data-at"]) < 1.5

    def test_a_link_holds_a_search(self, made):
        found = opened(made("--against", "o.json").source, fragment="#search=THERE")
        assert "1 of 3 utterances" in found.text and len(found.tags("article")) == 1

    def test_hostile_texts_stay_texts_without_the_policy_too(self, made):
        hostile = made("--against", "o.json").source
        found = opened(hostile, allow="script-src 'unsafe-inline'")
        assert found.tags("img") == [] and "owned" not in found.inline["title"][0]
