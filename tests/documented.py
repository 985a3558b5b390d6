"""How each command of the documentation is tried: documented.yaml has what isn't run as it is written, and why.

The commands themselves are taken from the pages (test_documentation.py), which are tried in this order, each in the
order of its text. A command that stands in no page, or in none of this table, fails the test.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import miniatures
import torch
import yaml
from small import sizes

from asr.features.frontend import FrontendSettings
from asr.models.recognizer import Recognizer
from asr.text.tokenizer import train


@dataclass(frozen=True)
class Way:
    """How a command is tried.

    more:     words put at its end
    replace:  what is written → what is tried
    why:      why it isn't tried as it is written
    status:   its exit status
    says:     what its output must hold, as a regular expression
    how:      run: it is; options: it is asked for --help, which must have all its options; not: it isn't
    whole:    the way to try it where all that takes long is asked for, too (ASR_DOCUMENTATION=whole)
    """

    more: str = ""
    replace: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    status: int = 0
    says: str = ""
    how: str = "run"
    whole: Mapping | None = None


def read():
    """Read documented.yaml: page → command → its way; what is said `often` stands for its $NAME."""
    tree = yaml.safe_load(Path(__file__).with_name("documented.yaml").read_text("utf-8"))
    pages = json.dumps(tree["pages"])
    for name, words in tree["often"].items():
        pages = pages.replace(f"${name}", words)
    pages = json.loads(pages)
    return {page: {name: Way(**way) for name, way in ways.items()} for page, ways in pages.items()}


PAGES = read()


# what a page's commands need besides


def mini(root: Path) -> None:
    """The corpus of recipes/mini, complete to its recipe's eyes."""
    corpus = root / "data/mini-corpus"
    sizes = {"train-mini": 60, "dev-mini": 6, "test-mini": 6}
    miniatures.librispeech(corpus / "LibriSpeech", sizes)
    miniatures.finished(corpus, "mini-1", seed=1, hours=3.5, **{"dev-mini": 200, "test-mini": 444})


def aishell_mini(root: Path) -> None:
    """The corpus of recipes/aishell/mini.sh, complete to its recipe's eyes."""
    corpus = root / "data/aishell-mini-corpus"
    miniatures.aishell(corpus / "data_aishell", {"train": 60, "dev": 6, "test": 6})
    miniatures.finished(corpus, "aishell-mini-1", seed=1, hours=1.2, dev=120, test=240)


def own(root: Path) -> None:
    """What somebody has who reads the README: recordings, texts, and the corpora that it names."""
    miniatures.table(root / "mine/recordings.tsv", miniatures.english(80))
    miniatures.speak(root / "new.wav", "HELLO WORLD")
    miniatures.speak(root / "a.wav", "HELLO AGAIN")
    miniatures.speak(root / "folder/b.ogg", "GOOD MORNING")
    miniatures.speak(root / "talk.flac", "GOOD MORNING AND HELLO WORLD")
    (root / "talk.txt").write_text("Good morning\n\nand hello world!\n")
    (root / "talk.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\n<i>Good</i> morning\n")
    miniatures.kaldi(root / "kaldi", 8)
    miniatures.common_voice(root / "cv-corpus/en", {"train": 8, "dev": 2, "test": 2})
    for name in ("musan/noise/wind", "RIRS_NOISES/simulated_rirs/room"):
        miniatures.speak(root / f"corpora/{name}.wav", "HUSH")
    for name, seed in (("train.txt", 5), ("dev.txt", 6)):
        miniatures.write(root / name, miniatures.english(40, seed))
    (root / "names.txt").write_text("NORWAY\nFOXTROT\t1.5\n")


def recordings(root: Path) -> None:
    """The recordings that a table of one's own names."""
    miniatures.table(root / "mine/more.tsv", miniatures.english(40)).rename(root / "more.tsv")
    miniatures.speak(root / "mine/a1.wav", "HELLO WORLD")


def an4(root: Path) -> None:
    """AN4, with utterances enough for its dev set and its tokens."""
    miniatures.an4(root / "an4", {"train": 180, "test": 6})


def real_english(root: Path) -> None:
    """The three corpora of recipes/english."""
    miniatures.table(root / "speechocean/train.tsv", miniatures.english(200, 7), speakers=20)
    miniatures.table(root / "speechocean/test.tsv", miniatures.english(6, 8))
    miniatures.common_voice(root / "cv-corpus/en", {"train": 120, "test": 2})
    an4(root)


def real_mandarin(root: Path) -> None:
    """A release's folder, in Mandarin."""
    miniatures.common_voice(root / "cv-corpus/zh", {"train": 260, "test": 6}, miniatures.chinese)


def aishell(root: Path) -> None:
    """A corner of AISHELL-1, and a text."""
    miniatures.aishell(root / "aishell/data_aishell", {"train": 4, "dev": 2, "test": 2})
    (root / "text.txt").write_text("a\t我们\n", encoding="utf-8")


def librispeech(root: Path) -> None:
    """A corner of all LibriSpeech that the recipe asks for."""
    subsets = "train-clean-100 train-clean-360 train-other-500 dev-clean test-clean test-other"
    miniatures.librispeech(root / "librispeech", dict.fromkeys(subsets.split(), 2))


def live(root: Path, model: str = "exp/mini-streaming/model") -> None:
    """A model with chunks, of random weights, and a talk."""
    torch.manual_seed(0)
    features = FrontendSettings(fbank={"sample_rate": 16000, "mels": 20})
    chunk = "chunk: {frames: [8, whole], left: 2}"
    settings = sizes(f"encoder: {{{chunk}}}")
    made = Recognizer(features, settings, train("characters", ["A TALK"]))
    config = {"features": features.model_dump(), "model": settings.model_dump()}
    made.save(root / model, yaml.safe_dump(config))
    miniatures.speak(root / "talk.wav", "a talk of some seconds")


def multi30k(root: Path) -> None:
    """Multi30k's files, of another grammar, whose translation is the words backwards."""
    sizes = {"train": 120, "val": 8, "test_2016_flickr": 4}
    sizes |= {"test_2017_flickr": 4, "test_2017_mscoco": 4}
    for seed, (split, count) in enumerate(sizes.items()):
        source = [text.lower() for text in miniatures.english(count, seed)]
        target = [" ".join(text.split()[::-1]) for text in source]
        for kind in (".lc.norm.tok", ""):
            miniatures.write(root / f"multi30k/{split}{kind}.en", source)
            miniatures.write(root / f"multi30k/{split}{kind}.de", target)


SETUPS = {
    "docs/transformer.md": (multi30k,),
    "recipes/multi30k/README.md": (multi30k,),
    "docs/live.md": (live,),
    "docs/serving.md": (lambda root: live(root, "exp/mini/model"),),
    "README.md": (mini, own),
    "docs/guide.md": (own,),
    "recipes/own/README.md": (recordings,),
    "recipes/mini/README.md": (mini,),
    "recipes/an4/README.md": (an4,),
    "recipes/yesno/README.md": (lambda root: miniatures.yesno(root / "waves_yesno"),),
    "recipes/english/README.md": (real_english,),
    "recipes/mandarin/README.md": (real_mandarin,),
    "recipes/aishell/mini.md": (aishell_mini,),
    "recipes/aishell/README.md": (aishell,),
    "recipes/librispeech/README.md": (librispeech,),
    "docs/accuracy.md": (an4,),
}
