"""The parts of rehearsal.py that are no commands of the toolkit, each run in a process of its own: NAME ARGUMENTS."""

import random
import sys
from pathlib import Path

LIBRISPEECH = {
    "train-clean-100": 28_539,
    "train-clean-360": 104_014,
    "train-other-500": 148_688,
    "dev-clean": 2703,
    "dev-other": 2864,
    "test-clean": 2620,
    "test-other": 2939,
}
AISHELL = {"train": 120_098, "dev": 14_326, "test": 7_176}
LINES, WORDS_A_LINE = (
    1_000_000,
    20,
)  # of the language model's text: a fortieth of LibriSpeech's 40 M lines

CONFIG = """
out: {root}/model
seed: 1
tokenizer: {root}/tokenizer
data: {{train: {root}/train.jsonl.gz, dev: {root}/dev.jsonl.gz, batch_seconds: 100, max_seconds: 36, \
speeds: [0.9, 1.0, 1.1]}}
features: {{fbank: {{sample_rate: 16000}}}}
model:
  kind: hybrid
  encoder: {{kind: transformer, d_model: 64, layers: 1, heads: 2, ff: 64, dropout: 0.1}}
  decoder: {{kind: transformer, d_model: 64, layers: 1, heads: 2, ff: 64, dropout: 0.1}}
optimizer: {{kind: adamw, lr: 1e-3}}
schedule: {{kind: cosine, warmup: 10}}
training: {{epochs: 4, accumulate: 8, device: cpu}}
"""


def scaled(counts: dict[str, int], scale: float) -> dict[str, int]:
    """Counts of a smaller corpus."""
    return {name: max(1, round(scale * count)) for name, count in counts.items()}


def write(corpus: str, root: str, scale: str) -> None:
    """Generate a corpus, or a text."""
    from scripts.bench import generated

    if corpus == "text":
        return generated.text(Path(root) / "text.txt.gz", round(LINES * float(scale)), WORDS_A_LINE)
    counts = {"librispeech": LIBRISPEECH, "aishell": AISHELL}[corpus]
    getattr(generated, corpus)(Path(root) / "corpus", scaled(counts, float(scale)))


def begin(root: str) -> None:
    """Open a training as a resumed run does: read, check and tokenize the manifests, plan an epoch."""
    from asr import config, tasks
    from asr.training.build import build

    settings = config.load(tasks.RecognizerExperiment, Path(root) / "x.yaml")
    model = build(settings)
    examples = settings.read(model, looked=True)
    settings.task(model, examples.train, examples.dev).plan(0, 8)


def problems(root: str) -> None:
    """Look through the data as asr-train --check does, the headers of the sound files included."""
    from asr import config, tasks
    from asr.preflight.problems import shared
    from asr.training.build import build

    settings = config.load(tasks.RecognizerExperiment, Path(root) / "x.yaml")
    model = build(settings)
    train, dev = (
        settings.look(role, getattr(settings.data, role), model, False) for role in ("train", "dev")
    )
    found = [*train.problems, *dev.problems, *shared(train.source, dev.source)]
    assert not any(problem.stops for problem in found), found


def score(unit: str, *tests: str) -> None:
    """Plant errors into the references of test sets, score them, and see that as many are found."""
    from asr.data import manifest
    from asr.scoring.report import score

    for test in tests:
        rng, planted, hypotheses = random.Random(1), 0, Path(f"{test}.txt")
        with open(hypotheses, "w", encoding="utf-8") as file:
            for utterance in manifest.read(test):
                said = utterance.text.split() if unit == "word" else list(utterance.text)
                heard = [
                    {0: "0", 1: None}.get(rng.randrange(20), token) for token in said
                ]  # 5 % each: "0", deleted
                planted += sum(new != old for new, old in zip(heard, said, strict=True))
                tokens = [token for token in heard if token]
                file.write(f"{utterance.id}\t{(' ' if unit == 'word' else '').join(tokens)}\n")
        found = score(test, hypotheses, unit).scores[unit]
        assert found.total.errors == planted and found.low < found.total.rate < found.high, (
            found.total,
            planted,
        )


def tokens(root: str) -> None:
    """Tokenise a language model's text to disk."""
    from asr.data.tokens import stored

    stored(f"{root}/text.txt.gz", f"{root}/tokenizer", f"{root}/tokens", 512)


def windows(root: str) -> None:
    """From an empty process to the first batch of a language model's training."""
    from asr.data.batches import collate_sentences
    from asr.data.bucketing import Windows
    from asr.data.tokens import stored

    sentences = stored(f"{root}/text.txt.gz", f"{root}/tokenizer", f"{root}/tokens", 512)
    collate_sentences(sentences, Windows(sentences.labels, 32_000, 1, 0, 8)[0][0])


PARTS = {
    function.__name__: function for function in (write, begin, problems, score, tokens, windows)
}


if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
