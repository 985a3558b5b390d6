"""The benchmark of silence, noise and music: words are counted, and sounds are what their names say."""

import json
from pathlib import Path

import numpy as np
import soundfile
from pytest import approx
from small import each

from scripts.bench import nonspeech


def test_words_heard_in_silence_noise_and_music_are_counted(monkeypatch, tmp_path, capsys):
    """Searches are replaced by ones that hear a word in every recording that isn't silent."""

    def hears(arguments):
        out, files = arguments[5], arguments[8:]
        sounds = {file: soundfile.read(file)[0] for file in files}
        lines = [{"id": file, "text": "LA LA" if x.any() else ""} for file, x in sounds.items()]
        Path(out).write_text("".join(json.dumps(line) + "\n" for line in lines))

    monkeypatch.setattr(nonspeech, "decode", hears)
    nonspeech.main(["exp/x", "--minutes", "0.5", "--modes", "joint", "--keep", str(tmp_path)])
    said = "zeros 0 words, 0 an hour, noise 2 words, 240 an hour, music 2 words, 240 an hour"
    assert capsys.readouterr().out == f"joint: {said}\n"
    sounds = {path.stem: soundfile.read(path) for path in tmp_path.iterdir()}
    assert all(len(x) == 30 * rate for x, rate in sounds.values())
    music, rate = sounds["music"]
    again = nonspeech.music(np.random.default_rng(1), 30)
    assert np.abs(music - again).max() < 1e-4 and np.abs(music).max() == approx(0.3, abs=0.01)
    silent = [np.abs(x).max() < 0.01 for x in np.split(music, 30)]  # a second each
    assert not any(silent[1:])


@each("note", [nonspeech.plucked, nonspeech.flute, nonspeech.organ, nonspeech.choir])
def test_notes_have_their_pitch(note):
    rng, f = np.random.default_rng(1), nonspeech.hertz(12)
    assert f == 220
    sound = note(rng, f, 1.0)[: nonspeech.RATE]
    peaks = np.abs(np.fft.rfft(sound * np.hanning(len(sound))))  # of 1 Hz each
    assert min(abs(peaks.argmax() - k * f) for k in range(1, 20)) <= 10
