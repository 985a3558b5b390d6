"""Judge word times of real speech: cut the words out by them, and let the model recognize each by itself.

    python -m scripts.bench.cut_words exp/an4/model data/an4/test.jsonl.gz

The words are those that the model recognized in their utterances, by jiwer's alignment with the
references. Each is cut out from its start to its end, put between faint noise and recognized again. A cut that
takes a part of the word away, or takes a part of its neighbor, has another text. All rows have the same
words: by the times that asr-decode tells, by CTC's frames alone, and by the told times when they are shifted
on purpose, which shows how much the measure notices. With --joined, the utterances stand one after another
in one recording with silences between them, and the time of words that lies in those is summed up.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import jiwer
import numpy as np
import soundfile

from asr.audio import load as audio
from asr.cli.command import command
from asr.data import manifest
from asr.models.recognizer import Recognizer, load
from asr.transcript import Word
from asr.transcription.encoding import encode
from asr.transcription.options import SearchOptions
from asr.transcription.pipeline import transcribe
from asr.transcription.recordings import Recording
from asr.transcription.searcher import Searcher

SILENCE = 0.3  # seconds before and after a word
PAUSE = 1.0  # seconds between utterances that are joined
NOISE = 3e-4  # its standard deviation, in both
SHIFTS = (-0.08, -0.04, 0.04, 0.08)  # seconds
BATCH = 100  # words

Spans = dict[
    tuple[str, int], tuple[str, float, float]
]  # utterance, place in its text → word, start, end


def matching(reference: str, words: Sequence[Word]) -> Iterator[int]:
    """Yield the places in a reference of words that were recognized, with their number among those."""
    spoken = " ".join(word.text for word in words)
    for chunk in jiwer.process_words(reference, spoken).alignments[0] if spoken else ():
        if chunk.type == "equal":
            yield from zip(
                range(chunk.ref_start_idx, chunk.ref_end_idx),
                range(chunk.hyp_start_idx, chunk.hyp_end_idx),
                strict=True,
            )


def spans(references: dict[str, str], words: dict[str, list[Word]]) -> Spans:
    """Find the words that were recognized, and when they are said: seconds from the recording's beginning."""
    found: Spans = {}
    for id, some in words.items():
        for place, n in matching(references[id], some):
            found[id, place] = (some[n].text, some[n].start, some[n].end)
    return found


def recognized(searcher: Searcher, cuts: Sequence[np.ndarray]) -> list[str]:
    """Recognize waveforms (S,) at the model's rate, each by itself."""
    recognizer, texts = searcher.recognizer, []
    for few in (cuts[n : n + BATCH] for n in range(0, len(cuts), BATCH)):
        encoded = encode(recognizer, few)
        nbests = searcher.search(encoded.H, encoded.H_lens)
        texts += [recognizer.tokenizer.decode(nbest[0].tokens) for nbest in nbests]
    return texts


def cut_out(
    recordings: dict[str, Recording], found: Spans, shift: float, rate: int
) -> list[np.ndarray]:
    """Cut words out of their recordings and put each between faint noise."""
    rng, cuts = np.random.default_rng(0), []
    waveforms = {
        r.id: audio.load(r.path, rate, r.start, r.duration, r.channel) for r in recordings.values()
    }
    for (id, _), (_, start, end) in found.items():
        at = recordings[id].start - shift
        part = waveforms[id][max(0, round((start - at) * rate)) : max(0, round((end - at) * rate))]
        noise = NOISE * rng.standard_normal((2, round(SILENCE * rate)), dtype=np.float32)
        cuts.append(np.concatenate([noise[0], part, noise[1]]))
    return cuts


def join(recordings: dict[str, Recording], path: Path, rate: int) -> dict[str, Recording]:
    """Write recordings one after another, with noise between them; where each is in that file."""
    rng, places = np.random.default_rng(1), {}
    with soundfile.SoundFile(path, "w", rate, 1, "FLOAT") as file:
        for id, r in recordings.items():
            file.write(NOISE * rng.standard_normal(round(PAUSE * rate)))
            places[id] = Recording(id, str(path), file.frames / rate, r.duration)
            file.write(audio.load(r.path, rate, r.start, r.duration, r.channel))
        file.write(NOISE * rng.standard_normal(round(PAUSE * rate)))
    return places


def words_of(
    recognizer: Recognizer, recordings: dict[str, Recording], options: SearchOptions, joined: bool
) -> dict[str, list[Word]]:
    """Transcribe recordings, or the one file that they are parts of; the words of each, with times."""
    sources = list(recordings.values())
    if joined:
        length = audio.info(sources[0].path).duration
        sources = [Recording("", sources[0].path, 0.0, length)]
    found = list(transcribe(recognizer, sources, options, times=True))
    if not joined:
        return {one.id: [w for s in one.segments for w in s.words] for one in found}
    words: dict[str, list[Word]] = {id: [] for id in recordings}
    ids, starts = list(recordings), np.array([r.start for r in recordings.values()])
    for word in (w for segment in found[0].segments for w in segment.words):
        n = int(np.searchsorted(starts - PAUSE / 2, (word.start + word.end) / 2)) - 1
        words[ids[max(0, n)]].append(word)
    return words


def in_silence(
    recordings: dict[str, Recording], words: dict[str, list[Word]]
) -> tuple[float, float]:
    """Sum up the seconds of words that lie outside their recordings, and those of all words."""
    outside = sum(
        max(0.0, r.start - word.start) + max(0.0, word.end - r.start - r.duration)
        for id, r in recordings.items()
        for word in words[id]
    )
    return outside, sum(word.end - word.start for some in words.values() for word in some)


def measure(args: argparse.Namespace, folder: Path) -> None:
    """Transcribe, cut out, recognize again, print."""
    recognizer = load(args.model)
    utterances = list(manifest.read(args.manifest))
    recordings = {u.id: Recording(u.id, u.path, u.start, u.duration, u.channel) for u in utterances}
    references, options = (
        {u.id: u.text for u in utterances},
        SearchOptions(ctc_weight=args.ctc_weight),
    )
    if args.joined:
        recordings = join(recordings, folder / "joined.wav", recognizer.sample_rate)
    words = words_of(recognizer, recordings, options, args.joined)
    told = spans(references, words)
    boundaries, recognizer.boundaries = recognizer.boundaries, None
    frames = spans(references, words_of(recognizer, recordings, options, args.joined))
    recognizer.boundaries = boundaries
    if args.joined:
        outside, whole = in_silence(recordings, words)
        print(f"{outside:.2f} s of {whole:.1f} s of words lie in the silences")
    rows = [("asr-decode's times", told, 0.0), ("CTC's frames alone", frames, 0.0)]
    rows += [(f"the first, {shift:+.2f} s", told, shift) for shift in SHIFTS]
    searcher = Searcher(recognizer, options)
    print(
        f"{len(told)} of {sum(len(text.split()) for text in references.values())} words recognized"
    )
    for name, found, shift in rows:
        texts = recognized(searcher, cut_out(recordings, found, shift, recognizer.sample_rate))
        again = [text == word for text, (word, *_) in zip(texts, found.values(), strict=True)]
        print(f"{name:20} {100 * np.mean(again):5.1f} % recognized again")


@command
def main(argv):
    """Measure, and print a row for each kind of times."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("model", metavar="DIR")
    args.add_argument("manifest", metavar="JSONL")
    args.add_argument("--ctc-weight", type=float, default=SearchOptions().ctc_weight)
    args.add_argument("--joined", action="store_true", help="to one recording")
    args = args.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        measure(args, Path(folder))


if __name__ == "__main__":
    main()
