"""Prove that models travel over the hub unchanged, by its own client against a stand-in (hub.py).

A hostile repository is refused before it is read, and what is cut off continues.
"""

import json
import shutil

import pytest
import yaml
from hub import TOKEN, Hub
from small import rows

from asr import score
from asr.errors import UserError
from asr.hub import find_model
from asr.hub.card import MARK
from asr.model_files import WEIGHTS

pytest.importorskip("huggingface_hub")
LICENSE = ["--license", "cc-by-4.0"]


@pytest.fixture
def hub():
    with Hub() as hub:
        yield hub


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def run(hub, forks, cache, tmp_path):
    """Run a command as somebody who has the hub's address, a token, and a cache."""

    def run(*words, **env):
        env = {
            "ENDPOINT": hub.url,
            "TOKEN": TOKEN,
            "HOME": str(cache),
            "HUB_DISABLE_XET": "1",
        } | env
        env = {f"HF_{name}": value for name, value in env.items()}
        return forks.run([str(word) for word in words], tmp_path, 120, more_env=env)

    return run


@pytest.fixture(scope="module")
def model(whole, root, tmp_path_factory):
    """A finished training, and beside it what it made of the dev set."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(whole[0], folder / "model", ignore=shutil.ignore_patterns("checkpoints"))
    return folder / "model"


@pytest.fixture(scope="module")
def files(model):
    """The files of the model's folder, by name."""
    return {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def decoded(model, root, forks):
    """The text of the dev set by the model."""
    manifest, out = root / "data/dev.jsonl.gz", model.parent / "dev.txt"
    words = ["asr-decode", "--model", model, "--manifest", manifest, "--out", out]
    done = forks.run([str(word) for word in words], root)
    assert done.status == 0, done.err
    return out


def test_what_is_pushed_comes_back_and_decodes_the_same(hub, run, model, decoded, root, tmp_path):
    done = run("asr-push", model, "me/tones", *LICENSE, "--language", "en")
    assert done.status == 0, done.err
    name = done.out.strip()
    assert name == f"me/tones@{hub.head('me/tones')}"
    published = hub.files("me/tones")
    assert published[WEIGHTS] == (model / WEIGHTS).read_bytes()
    assert not [path for path in published if "checkpoint" in path or path.endswith(".jsonl")]

    manifest = root / "data/dev.jsonl.gz"
    again = run("asr-decode", "--model", "me/tones", "--manifest", manifest)
    assert again.out == decoded.read_text(), again.err
    assert name.partition("@")[2] in again.err  # what it is, before it is used
    assert {path for path, _ in hub.served} <= set(published) - {"README.md", ".gitattributes"}

    older, served = name, len(hub.served)
    hub.commit("me/tones", published | {WEIGHTS: b"broken"})
    pinned = run("asr-decode", "--model", older, "--manifest", manifest)
    assert (pinned.out, len(hub.served)) == (again.out, served)  # from the cache
    for env in ({"HUB_OFFLINE": "1"}, {"ENDPOINT": "http://127.0.0.1:9"}):
        alone = run("asr-info", older, **env)
        assert alone.status == 0 and "recognizer" in alone.out, alone.err
    assert run("asr-info", "me/tones").status == 2


@pytest.mark.slow
def test_a_training_begins_with_a_published_model(hub, run, files, root, tmp_path):
    sha = hub.commit("me/tones", files)
    settings = ["out=tuned", "init_from=me/tones", "training.epochs=1"]
    done = run("asr-train", "--config", root / "x.yaml", *settings)
    assert done.status == 0, done.err
    begun = yaml.safe_load((tmp_path / "tuned/config.yaml").read_text())["init_from"]
    assert sha in begun


def test_the_card_has_the_run_s_own_figures(hub, run, model, decoded, root, tmp_path):
    (tmp_path / "bleu.json").write_text(
        json.dumps(
            {"bleu": {"score": 40.9, "low": 39.2, "high": 42.4, "signature": "x"}, "lines": 9}
        )
    )
    more = ["--scores", "test=bleu.json", "--language", "en", "--dry-run"]
    done = run("asr-push", model, "me/tones", *LICENSE, *more)
    assert (done.status, hub.repositories) == (0, {}), done.err
    _, head, text = done.out.split("---\n", 2)
    tree = yaml.safe_load(head)
    assert (tree["license"], tree["language"]) == ("cc-by-4.0", ["en"])
    assert tree["pipeline_tag"] == "automatic-speech-recognition"
    metrics = {
        result["dataset"]["name"]: metric
        for result in tree["model-index"][0]["results"]
        for metric in result["metrics"]
    }
    expected = score(root / "data/dev.jsonl.gz", decoded).scores["word"]
    assert metrics["data dev"]["type"] == "wer"
    assert metrics["data dev"]["value"] == round(100 * expected.rate, 2)
    assert metrics["test"] == {"type": "bleu", "value": 40.9, "name": "BLEU"}
    assert (
        f"WER {100 * expected.rate:.2f} % | {100 * expected.low:.2f} – {100 * expected.high:.2f}"
        in text
    )
    assert "0.01 hours, 40 utterances" in text and "asr-decode --model me/tones" in text


def test_decodings_of_other_weights_or_manifests_are_left_out(run, model, decoded, tmp_path):
    folder = tmp_path / "results"
    for name, says in ((WEIGHTS, "no error rates"), ("dev.jsonl.gz", "has changed since")):
        shutil.copytree(decoded.parent, folder, dirs_exist_ok=True)
        path = folder / ".dev.txt.stamp.json"
        stamped = json.loads(path.read_text())
        stamped["inputs"] = {
            place: "0" * 32 if place.endswith(name) else digest
            for place, digest in stamped["inputs"].items()
        }
        path.write_text(json.dumps(stamped))
        done = run("asr-push", model, "me/x", *LICENSE, "--results", folder, "--dry-run")
        assert done.status == 0 and says in done.err and "model-index" not in done.out


def test_a_card_written_by_hand_stays(hub, run, model):
    for text, stays in ((f"# Old\n{MARK}\n", False), ("# By hand\n", True)):
        hub.commit("me/tones", {"README.md": text.encode()})
        assert run("asr-push", model, "me/tones", *LICENSE).status == 0
        assert (hub.files("me/tones")["README.md"] == text.encode()) == stays


def test_an_upload_that_is_cut_off_publishes_nothing_and_goes_on(hub, run, model, files):
    hub.cut_upload = 1000
    first = run("asr-push", model, "me/tones", *LICENSE)
    assert hub.cut_upload is None
    if first.status:  # the client may have tried again by itself
        assert first.status == 2 and "run the same command again" in first.err
        assert WEIGHTS not in hub.files("me/tones")
        assert run("asr-push", model, "me/tones", *LICENSE).status == 0
    assert hub.files("me/tones")[WEIGHTS] == files[WEIGHTS]
    assert len(hub.repositories["me/tones"]) == 2  # that of its creation, and one


def test_a_download_that_is_cut_off_goes_on(hub, run, files, root, decoded):
    hub.commit("me/tones", files)
    hub.cut_download = 20_000
    command = ["asr-decode", "--model", "me/tones", "--manifest", root / "data/dev.jsonl.gz"]
    done = run(*command)
    assert hub.cut_download is None
    if done.status:  # likewise
        assert done.status == 2 and "doesn't give it" in done.err
        done = run(*command)
    assert (done.status, done.out) == (0, decoded.read_text()), done.err


REFUSED = """
empty      |                                | no files
pickle     | pytorch_model.bin              | no config.yaml
encoder    | config.json model.safetensors  | source to train from
no weights | config.yaml                    | no model.safetensors
"""


@pytest.mark.parametrize(("names", "says"), [row[1:] for row in rows(REFUSED)])
def test_what_is_no_model_is_refused_before_it_is_fetched(hub, run, names, says):
    hub.commit("me/x", dict.fromkeys(names.split(), b"\x80\x04."))
    done = run("asr-decode", "--model", "me/x", "a.wav")
    assert done.status == 2 and says in done.err and not hub.served, done.err


EVIL = b"!!python/object/apply:os.system ['touch ran']\n"
SPOILED = {  # name → content in its place, and what is said
    "config.yaml": (EVIL, "config.yaml"),
    WEIGHTS: (b"\x80\x04" * 500, "damaged"),
    "tokenizer.json": (b'{"kind": "characters", "symbols": "X"}', "tokenizer.json"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_hostile_repositories(hub, run, files, root, tmp_path, name):
    content, says = SPOILED[name]
    others = {"../../outside": b"x", "/outside": b"x", "model.py": EVIL, "pytorch_model.bin": EVIL}
    hub.commit("me/x", files | others | {name: content})
    done = run("asr-decode", "--model", "me/x", "--manifest", root / "data/dev.jsonl.gz")
    assert done.status == 2 and says in done.err, done.err
    assert {path for path, _ in hub.served} <= set(files)
    assert not list(tmp_path.rglob("outside")) and not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("name", "size"), [("config.yaml", 1 << 30), (WEIGHTS, 1 << 60)])
def test_huge_files_are_not_fetched(hub, run, files, name, size):
    hub.commit("me/x", files)
    hub.claims = {name: size}
    done = run("asr-info", "me/x")
    assert done.status == 2 and not hub.served, done.err


def test_a_link_out_of_the_cache_is_not_followed(hub, run, cache, files, tmp_path):
    name = f"me/x@{hub.commit('me/x', files)}"
    assert run("asr-info", name).status == 0
    (path,) = cache.rglob("snapshots/*/tokenizer.json")
    path.unlink()
    (tmp_path / "outside").write_bytes(files["tokenizer.json"])
    path.symlink_to(tmp_path / "outside")
    done = run("asr-info", name)
    assert done.status == 2 and "links out of" in done.err, done.err


MISTAKES = """
--license Apache!                         | --license: got 'Apache!'
--license mit --language English          | --language: got 'English'
--license mit --scores test               | --scores: got 'test', expected SET=FILE
--license mit --scores test=dev.txt       | dev.txt: got no scores
--license mit --results absent            | --results: absent: no such folder
--license mit --notes absent.md           | absent.md: no such file
"""


@pytest.mark.parametrize(("options", "says"), rows(MISTAKES))
def test_mistakes_of_a_push(hub, run, model, decoded, tmp_path, options, says):
    shutil.copy(decoded, tmp_path / "dev.txt")
    done = run("asr-push", model, "me/tones", *options.split())
    assert (done.status, hub.repositories) == (2, {}) and says in done.err, done.err


def test_folders_and_names_that_cannot_be_pushed(hub, run, model, tmp_path):
    shutil.copytree(model, tmp_path / "bad")
    content = bytearray((model / WEIGHTS).read_bytes())
    content[-9] ^= 1
    (tmp_path / "bad" / WEIGHTS).write_bytes(content)
    for folder, name, says in (
        (tmp_path / "bad", "me/x", "damaged"),
        (tmp_path, "me/x", "no model folder"),
        (model, "x", "expected owner/name"),
        (model, "me/x@main", "expected owner/name"),
    ):
        done = run("asr-push", folder, name, *LICENSE)
        assert done.status == 2 and says in done.err and not hub.repositories, done.err
    refused = run("asr-push", model, "me/x", *LICENSE, TOKEN="hf_reader")
    assert refused.status == 2 and "hf auth login" in refused.err


def test_a_folder_comes_before_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "exp").mkdir()
    for name in ("exp", "exp/absent", "a/b/c", "x", str(tmp_path / "a/b")):
        assert find_model(name) == name
    assert find_model(f"file://{tmp_path}/a%20b") == f"{tmp_path}/a b"
    with pytest.raises(UserError, match="no such folder here"):
        find_model("nobody/nothing")
