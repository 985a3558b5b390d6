"""The page of asr-serve in Chromium: what is spoken into a microphone or dropped comes out as words that play.

The recognizer is that of spoken.py, whose letters are tones. A recording of them is the browser's microphone. axe
judges accessibility, pysubs2 subtitles, soxr the resampling.
"""

import json
import re
import shutil

import httpx
import numpy as np
import pysubs2
import pytest
import soundfile
import soxr
from served import serving
from small import each, sizes, slow
from spoken import FEATURES, HOW, LETTERS, TEXT, say

import asr
from asr.models.recognizer import Recognizer
from asr.serving import app
from asr.serving.engine import Engine
from asr.transcript import Final

NAMES = "chromium", "chromium-browser", "google-chrome"
BROWSER = next(filter(None, map(shutil.which, NAMES)), "")
SHORT, FINALS = TEXT[:20], ["AB CDA", "EB D"]
STATIC = sorted(app.STATIC.iterdir())
LEAD = "-" * 10  # 2 s in which a slow machine begins to hear
SPOKEN = np.concatenate([say(sounds, rate=48_000) for sounds in (LEAD, SHORT, "-" * 99)])
ENOUGH = 0.2 * len(LEAD + SHORT) + 1.5  # seconds: all is said, and the last segment has ended
# gain control raises faint noise until the recognizer hears letters in it
PLAIN_MICROPHONE = """
const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
navigator.mediaDevices.getUserMedia = ({ audio }) => {
  window.constraints = audio;
  return open({ audio: { ...audio, autoGainControl: false } });
};
"""
DROPPED = "AB CDA EB D"


@each("path", STATIC, ids=lambda path: path.name)
def test_files_are_small_and_know_no_other_host(path):
    text = path.read_text()
    assert len(text.splitlines()) < 270 and max(map(len, text.splitlines())) < 400
    foreign = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)
    assert {*foreign} <= {"http://www.w3.org"}  # of SVG
    assert not re.search(r"\binnerHTML|insertAdjacentHTML|document\.write|\beval\(", text)


def test_markup_holds_what_scripts_look_for():
    markup = (app.STATIC / "index.html").read_text()
    forbidden = r"<style|\bstyle=|\son\w+=|<script(?![^>]*src)"  # by the policy
    assert not re.search(forbidden, markup)
    scripts = {path.name: path.read_text() for path in STATIC if path.suffix == ".js"}
    script = "".join(scripts.values())
    looked_for = {*re.findall(r'(?:find|getElementById)\("([\w-]+)"\)', script)}
    ids = {*re.findall(r'\bid="([\w-]+)"', markup)}
    classes = {*re.findall(r"[\w-]+", " ".join(re.findall(r'class="([^"]+)"', markup)))}
    assert ids & looked_for and looked_for - ids - classes - {"h2"} == {"footer"}
    imported = {*re.findall(r'(?:from|URL\() ?"(?:\./)?([\w.]+)"', script)}
    assert imported | {"app.js"} == scripts.keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def served(recognizer):
    with serving({"tones": Engine(recognizer, HOW)}) as address:
        yield address


@pytest.fixture(scope="module")
def browser(folder):
    """Chromium, with a recording as its microphone."""
    why = "no Chromium, or no playwright, is installed: the page wasn't tried"
    sync_api = pytest.importorskip("playwright.sync_api", reason=why)
    if not BROWSER:
        pytest.skip(why)
    soundfile.write(folder / "spoken.wav", SPOKEN, 48_000, "PCM_16")
    microphone = f"--use-file-for-fake-audio-capture={folder}/spoken.wav%noloop"
    flags = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    flags += [microphone, "--autoplay-policy=no-user-gesture-required"]
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=BROWSER, args=flags)


@pytest.fixture
def page(browser):
    """A page in a browser of its own; no message may stand in its console that a test didn't cause."""
    messages = []
    with browser.new_context(viewport={"width": 1100, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.add_init_script(PLAIN_MICROPHONE)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.messages = messages
        yield page
    assert messages == []


def finished(page):
    page.wait_for_selector(".take > footer:not([hidden])")
    return page.locator(".segment p").evaluate_all(
        "ps => ps.map((p) => [...p.querySelectorAll('.word')].map((w) => w.textContent).join(' '))"
    )


def drop(page, path):
    """Drop a file on the page, as a browser tells it."""
    data = list(path.read_bytes())
    page.evaluate(
        """([name, data]) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([new Uint8Array(data)], name));
          for (const type of ["dragenter", "drop"]) {
            document.body.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer }));
          }
        }""",
        [path.name, data],
    )


@pytest.fixture(scope="module")
def dropped(folder):
    """A recording that goes on for longer than a test plays it."""
    path = folder / "<img src=x onerror=document.title='owned'> & co.wav"
    soundfile.write(path, say("--AB_CDA_EB_D" + "-" * 60), 8000)
    return path


def watched(page):
    """What a page sends by WebSocket, in order."""
    sent = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    return sent


def heard(sent):
    """The samples of what was sent."""
    return np.frombuffer(b"".join(frame for frame in sent if isinstance(frame, bytes)), "<i2")


def fitted(wave):
    """Fit each tone, in order, where it comes first: (correlation, gain). A starved browser may delay what follows."""
    tones, size, place = SPOKEN.reshape(-1, 9600), 2 ** len(wave).bit_length(), 0  # 0.2 s
    sums, spectrum = np.cumsum(np.append(0, wave**2)), np.fft.rfft(wave, size)
    energy, apart = sums[9600:] - sums[:-9600], len(wave)  # the first may be anywhere
    for tone in tones[tones.std(1) > 0.1].astype(float):
        fits = np.fft.irfft(np.fft.rfft(tone, size).conj() * spectrum)[: len(energy)]
        fits[: max(0, place - 100)] = fits[place + apart :] = 0.0
        alike = fits / np.linalg.norm(tone) / np.sqrt(energy + 1e-9)
        place = int((alike > 0.95 * alike.max()).argmax())  # the same letter may come again
        place += int(alike[place : place + 4800].argmax())  # within half a tone
        yield alike[place], fits[place] / (tone @ tone)
        place, apart = place + 9600, 48_000 * 3  # the longest pause, and a delay


def stop(page, sent):
    """Press the button when all is said."""
    page.wait_for_selector(".segment >> nth=1")
    while len(heard(sent)) < 16_000 * ENOUGH:
        page.wait_for_timeout(50)
    assert page.text_content("#speak-label") == "Stop"
    page.click("#speak")


def spoken(texts):
    """The segments, without a letter for the noise that sets in after a browser's digital silence."""
    return texts[len(texts[0]) == 1 :]


def finals(recognizer, samples):
    """What asr.stream makes of them."""
    stream = asr.stream(recognizer, **vars(HOW))
    events = stream.push(samples, 16_000) + stream.finish()
    return [event.segment.text for event in events if isinstance(event, Final)]


@slow
def test_what_is_spoken_is_read_on_the_page(page, served, recognizer, capsys):
    sent = watched(page)
    page.goto(f"http://{served}")
    page.click("#speak")
    page.wait_for_selector(".partial")
    first = page.evaluate("performance.getEntriesByName('first-word')[0].startTime / 1000")
    with capsys.disabled():
        print(f"\nfirst word {first:.2f} s after the page began to load; it is spoken after 2.4 s")
    constraints = page.evaluate("constraints")
    assert constraints.pop("autoGainControl") and not (constraints.pop("channelCount") - 1)
    assert constraints and not any(constraints.values())
    color = "element => getComputedStyle(element).color"
    assert len({page.locator(which).first.evaluate(color) for which in (".partial", "h1")}) == 2
    stop(page, sent)
    texts, samples = finished(page), heard(sent)
    assert texts == finals(recognizer, samples)
    # tones that begin within a frame may be letters more
    assert all(one in text for one, text in zip(FINALS, spoken(texts), strict=True))
    loud = soxr.resample(samples / 32_768, 16_000, 48_000)
    alike, gains = np.array(list(fitted(loud))).T
    assert alike.min() > 0.99
    assert gains.mean() * np.linalg.norm(SPOKEN) / np.linalg.norm(loud) > 0.99  # nothing beside it
    assert re.fullmatch(r"0:00 / 0:\d\d", page.text_content(".player output"))
    page.locator(".word", has_text="EB").click()
    page.wait_for_selector(".now >> text=EB")


@slow
def test_a_broken_connection_loses_no_word(page, served, recognizer):
    begun, sent, positions = [], [], []  # how much had been sent when each connection began

    def pass_on(route):
        server = route.connect_to_server()
        begun.append(len(sent))

        def ask(message):
            sent.append(message)
            server.send(message)

        def answer(message):
            route.send(message)
            if len(begun) == 1 and '"final"' in message:
                positions.append(json.loads(message)["position"])
                route.close(code=1012)
                server.close()

        route.on_message(ask)
        server.on_message(answer)

    page.route_web_socket("**/v1/stream", pass_on)
    page.goto(f"http://{served}")
    page.click("#speak")
    stop(page, sent)
    texts = finished(page)
    [_, second], [position] = begun, positions
    before = heard(sent[:second])[: round(16_000 * position)]
    assert texts == finals(recognizer, np.concatenate([before, heard(sent[second:])]))
    assert len(spoken(texts)) == 2


@slow
def test_a_dropped_file_plays_at_the_word_that_is_clicked(page, served, dropped, folder):
    """It shows what the API tells of it; it plays slowly, for a busy machine looks late."""
    page.add_init_script(
        """const play = HTMLMediaElement.prototype.play;
        HTMLMediaElement.prototype.play = function () {
            this.playbackRate = 0.1;
            return play.call(this);
        };"""
    )
    form = {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]}
    url = f"http://{served}/v1/audio/transcriptions"
    found = httpx.post(url, data=form, files={"file": dropped.read_bytes()}).json()
    page.goto(f"http://{served}")
    drop(page, dropped)
    assert finished(page) == [segment["text"] for segment in found["segments"]] == [DROPPED]
    assert page.locator("h2").first.text_content() == dropped.name
    assert page.title() == "Speech to text"  # its name stayed a name
    words, shown = found["words"], page.locator(".word")
    for n, word in enumerate(words):
        assert f"{round(100 * word['confidence'])} % sure" in shown.nth(n).get_attribute("title")
    shown.nth(1).click()
    page.wait_for_selector(".now")
    assert shown.nth(1).evaluate("word => word.classList.contains('now')")
    position = float(page.locator(".player input").input_value())
    assert words[1]["start"] <= position < words[1]["start"] + 0.5
    page.locator(".play").click()
    page.locator(".transcript").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".now:text-is('EB')")
    page.keyboard.press(" ")
    page.wait_for_selector(".play[aria-label=Play]")
    if "nbest" in found["segments"][0]:
        page.hover(".readings >> nth=0")
    for kind in ("srt", "vtt", "json", "txt"):
        with page.expect_download() as download:
            page.click(f".save[data-format={kind}]")
        download.value.save_as(folder / f"saved.{kind}")
    for kind in ("srt", "vtt"):
        [cue] = pysubs2.load(str(folder / f"saved.{kind}"))
        assert cue.text == DROPPED
        assert cue.start / 1000 == pytest.approx(found["segments"][0]["start"], abs=1e-3)
    saved = json.loads((folder / "saved.json").read_text())["segments"]
    spelled = [word["text"] for part in saved for word in part["words"]]
    assert spelled == [word["word"] for word in words]
    assert (folder / "saved.txt").read_text() == f"{DROPPED}\n"


@slow
def test_models_without_streams_transcribe_what_was_recorded(page, recognizer):
    whole = Recognizer(FEATURES, sizes(), LETTERS).eval()
    engines = {"tones": Engine(recognizer, HOW), "whole": Engine(whole)}
    with serving(engines) as address:
        page.goto(f"http://{address}")
        page.select_option("#model", "whole")
        page.click("#speak")
        page.wait_for_selector("#notice:has-text('when you stop')")
        with page.expect_response("**/v1/audio/transcriptions") as response:
            page.click("#speak")
        assert response.value.status == 200 and response.value.json()["model"] == "whole"


@slow
def test_a_token_is_asked_for_and_then_known(page, recognizer, dropped):
    with serving({"tones": Engine(recognizer, HOW)}, token="geheim") as address:
        page.goto(f"http://{address}")
        for token in ("wrong", "geheim"):
            page.fill("#token-field", token)
            with page.expect_response("**/v1/models") as answer:
                page.keyboard.press("Enter")
        assert answer.value.status == 200
        page.wait_for_selector("#token", state="hidden")
        drop(page, dropped)
        assert finished(page) == [DROPPED]
        page.click("#speak")
        page.wait_for_selector(".partial")
        page.click("#speak")
        page.wait_for_selector(".progress", state="hidden")
    logged = [text for text in page.messages if "401" not in text]
    page.messages[:] = logged  # the browser logs them


@slow
@each("scheme, width", [("light", 390), ("dark", 1100)])
def test_everyone_can_use_it(browser, served, dropped, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    size = {"width": width, "height": 844}
    how = {"viewport": size, "color_scheme": scheme, "bypass_csp": True}
    with browser.new_context(**how) as context:
        page = context.new_page()
        page.goto(f"http://{served}")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "speak"
        page.click("summary")
        drop(page, dropped)
        finished(page)
        page.click(".word")
        page.wait_for_selector(".now")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("[role=log]").get_attribute("aria-live") == "polite"
        page.evaluate("document.getElementById('token').showModal()")
        found = axe.run(page).response["violations"]
        page.evaluate("document.getElementById('token').close()")
        found += axe.run(page).response["violations"]
    assert found == []


CLOSING = """async () => {
  const sockets = [];
  window.WebSocket = class {
    static OPEN = 1;
    readyState = 1;
    bufferedAmount = 0;
    sent = [];
    constructor() { sockets.push(this); }
    send(data) {
      if (this.readyState !== 1) throw new Error("sent to a socket that is closing");
      this.sent.push(typeof data === "string" ? JSON.parse(data).type : data.length);
    }
  };
  const { Live } = await import("/live.js");
  const recording = { length: 300, from: (n) => new Int16Array(recording.length - n) };
  const live = new Live(recording, {}, { waiting() {} });
  const ready = { data: JSON.stringify({ type: "ready" }) };
  sockets[0].onopen();
  sockets[0].onmessage(ready);
  sockets[0].readyState = 2; // the server has begun to close it
  recording.length = 500;
  live.pump();
  live.end();
  sockets[0].onclose();
  while (sockets.length < 2) await new Promise((resolve) => setTimeout(resolve, 20));
  sockets[1].onopen();
  sockets[1].onmessage(ready);
  return sockets.map((socket) => socket.sent);
}"""


@slow
def test_nothing_is_sent_to_a_socket_that_is_closing_and_all_of_it_to_the_next(page, served):
    page.goto(f"http://{served}")
    assert page.evaluate(CLOSING) == [["config", 300], ["config", 500, "end"]]


RESAMPLED = """async ([samples, from, to, sizes]) => {
  const { Resampler } = await import("/resampler.js");
  const [made, results] = [new Resampler(from, to), []];
  let at = 0;
  while (at < samples.length) {
    const size = sizes[at % sizes.length];
    results.push(...made.push(Float32Array.from(samples.slice(at, at + size))));
    at += size;
  }
  return [...results, ...made.flush()];
}"""


@slow
@each("rate", [8000, 44_100, 48_000])
def test_the_microphone_is_resampled_as_soxr_does(page, served, rate):
    page.goto(f"http://{served}")
    draw, t = np.random.default_rng(rate), np.arange(rate // 8) / rate
    hz = draw.uniform(100, 0.42 * min(rate, 16_000), (20, 1))
    samples = 0.04 * np.sin(2 * np.pi * hz * t + hz).sum(0)
    given = [samples.tolist(), rate, 16_000]
    made, again = (page.evaluate(RESAMPLED, [*given, sizes]) for sizes in ([128], [1, 700, 33]))
    assert made == again  # however the samples come
    expected = soxr.resample(samples, rate, 16_000, quality="VHQ")
    inner = slice(400, -400)
    assert len(made) == pytest.approx(len(expected), abs=1)
    off = np.subtract(made[: len(expected)], expected[: len(made)])
    assert np.abs(off[inner]).max() < 1e-3
    if rate > 16_000:  # nothing above half of the rate folds back
        high = np.sin(2 * np.pi * draw.uniform(8200, rate / 2 - 200) * t).tolist()
        assert np.abs(page.evaluate(RESAMPLED, [high, rate, 16_000, [128]]))[inner].max() < 1e-3
