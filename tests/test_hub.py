"""Prove that models travel over the hub unchanged, by its own client against a stand-in (hub.py).

A hostile repository is refused before it is read, and what is cut off continues.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hub import TOKEN, Hub
from small import rows
from spoken import LETTERS

import asr
from asr import score
from asr.errors import UserError
from asr.hub import find_model
from asr.hub.cache import names_of_model
from asr.hub.card import CARD, MARK, _install, is_unedited, seal
from asr.model_files import BOUNDARIES, CALIBRATION, WEIGHTS
from asr.stamp import read as read_stamp
from asr.text import kneser_ney

pytest.importorskip("huggingface_hub")
LICENSE = ["--license", "cc-by-4.0"]
OFFLINE, UNREACHABLE = {"HUB_OFFLINE": "1"}, {"ENDPOINT": "http://127.0.0.1:9"}
NO_MODEL = {  # by its names it is one: downloaded, and refused where it is read
    "config.yaml": b"model: {kind: hybrid}\n",
    WEIGHTS: b"x" * 5000,
    "tokenizer.json": b"{}",
}


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
    assert name.partition("@")[2] in again.err and "me/tones is a recognizer" in again.err
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

    hub.commit("me/tones", files | {WEIGHTS: b"newer"})  # the run stays with its commit
    again = run("asr-train", "--config", root / "x.yaml", *settings)
    assert (again.status, again.out) == (0, ""), again.err
    assert "up to date" in again.err
    other = run("asr-train", "--config", root / "x.yaml", *settings[1:], "out=new")
    assert other.status == 2 and WEIGHTS in other.err  # a new run takes the new one


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
    made, trained = (read_stamp(path)["made"] for path in (decoded, model))
    [row] = [line for line in text.splitlines() if line.startswith("| data dev")]
    cells = f"{made['rtf']:.3f}", made["hardware"], made["commit"]
    assert all(f"| {cell} |" in row for cell in cells)
    assert f"hours on {trained['hardware']}, code {trained['commit']}" in text
    limits = text.partition("## Limits")[2]
    assert "other kinds, rooms or accents may have far more errors" in limits
    assert "commercial" not in limits
    more = ["--license", "cc-by-nc-sa-4.0", "--dry-run"]
    free = run("asr-push", model, "me/tones", *more).out.partition("## Limits")[2]
    assert "- Its license (cc-by-nc-sa-4.0) allows no commercial use." in free


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


def test_a_card_written_or_edited_by_hand_stays(hub, run, model):
    ours = seal(f"# Old\n{MARK}\ntext\n")
    stays = ["# By hand\n", ours.replace("text", "texts"), f"{ours}\nmore\n", f"# Old\n{MARK}\n"]
    for text, left in ((ours, False), *((text, True) for text in stays)):
        hub.commit("me/tones", {CARD: text.encode()})
        done = run("asr-push", model, "me/tones", *LICENSE)
        assert done.status == 0, done.err
        published = hub.files("me/tones")[CARD].decode()
        assert (published == text) == left == ("stays as it is" in done.err)
    hub.commit("me/tones", {})
    for language in ("en", "de"):  # its own card is replaced
        assert run("asr-push", model, "me/tones", *LICENSE, "--language", language).status == 0
        published = hub.files("me/tones")[CARD].decode()
        assert is_unedited(published) and f"- {language}\n" in published


def test_a_push_removes_the_files_that_only_an_earlier_model_had(hub, run, model, files):
    kept = {".gitattributes": b"x", "notes.txt": b"theirs", "source/notes.txt": b"theirs"}
    hub.commit("me/tones", kept | dict.fromkeys(names_of_model(), b"of another model"))
    assert len(hub.files("me/tones")) > 8
    done = run("asr-push", model, "me/tones", *LICENSE)
    assert done.status == 0, done.err
    own = {name: data for name, data in files.items() if name in names_of_model()}
    published = hub.files("me/tones")
    del published[CARD]
    assert published == own | kept
    absent = {BOUNDARIES, CALIBRATION} - own.keys()
    assert absent and all(name in done.err for name in absent)


def test_calibration_does_not_change_the_cache(hub, run, cache, files, root, tmp_path):
    sha = hub.commit("me/tones", files | {CALIBRATION: b"method: beta\n"})
    command = ["asr-decode", "--manifest", root / "data/dev.jsonl.gz", "--calibrate"]
    assert run("asr-info", "me/tones").err.count(sha)
    before = {path: path.read_bytes() for path in cache.rglob("blobs/*")}
    (folder,) = cache.glob("hub/models--me--tones/snapshots/*")
    for name in ("me/tones", folder):
        done = run(*command, "--model", name)
        assert done.status == 2 and f"me/tones@{sha}" in done.err, done.err
    assert before == {path: path.read_bytes() for path in cache.rglob("blobs/*")}
    copy = re.search(r"cp -rL .*(?=, and give)", done.err)[0]
    subprocess.run(shlex.split(copy), cwd=tmp_path, check=True)
    folder = tmp_path / "tones"
    copied = {path.name: path.read_bytes() for path in folder.iterdir() if not path.is_symlink()}
    assert (
        copied.items() <= (files | {CALIBRATION: b"method: beta\n"}).items() and WEIGHTS in copied
    )
    (folder / CALIBRATION).unlink()
    done = run(*command, "--model", "tones")  # goes on to decode, though its set is too small
    assert done.status == 2 and "utterances with confidences" in done.err, done.err


def test_the_card_says_how_to_install(tmp_path):
    assert is_unedited(seal(f"# x\n{MARK}\n")) and not is_unedited("") and not is_unedited(MARK)
    extras = {}
    for kind in ("conformer", "pretrained"):
        (tmp_path / "config.yaml").write_text(f"model: {{encoder: {{kind: {kind}}}}}\n")
        extras[kind] = re.search(r'pip install -e "\.\[(.+)\]"', _install(tmp_path))[1].split(",")
    assert extras == {"conformer": ["hub"], "pretrained": ["hub", "pretrained"]}
    declared = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in declared for extra in extras["pretrained"])


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


def test_a_kind_that_is_no_word_is_said_and_refused(hub, run):
    hub.commit("me/x", NO_MODEL | {"config.yaml": b"model: {kind: [hybrid]}\n"})
    done = run("asr-decode", "--model", "me/x", "a.wav")
    assert done.status == 2 and "me/x is a model of an unknown kind" in done.err
    assert "Traceback" not in done.err


def test_a_name_is_found_without_the_hub_as_it_was_last_downloaded(hub, run):
    def used(name, **env):
        """The commit that a command reads, and its log."""
        done = run("asr-info", name, **env)
        found = re.search("snapshots/([0-9a-f]{40})/", done.err)
        assert found, done.err
        return found[1], done.err

    old = hub.commit("me/x", NO_MODEL)
    assert used("me/x")[0] == old
    for name in ("me/x", "me/x@main", f"me/x@{old}"):
        for env in (OFFLINE, UNREACHABLE):
            commit, log = used(name, **env)
            assert commit == old and f"me/x@{old}: from the cache" in log
            assert ("can't be reached" in log) == (env is UNREACHABLE and old not in name)
    new = hub.commit("me/x", NO_MODEL | {WEIGHTS: b"y" * 5000})
    hub.down = True
    assert used("me/x")[0] == old
    hub.down, hub.claims = False, {"config.yaml": 1 << 30}
    refused = run("asr-info", "me/x")
    assert refused.status == 2 and "snapshots" not in refused.err
    assert used("me/x", **OFFLINE)[0] == old  # what was refused isn't remembered
    hub.claims = {}
    assert used("me/x@main")[0] == used("me/x", **OFFLINE)[0] == new
    del hub.repositories["me/x"]  # an answer: the cache isn't used in its place
    gone = run("asr-info", "me/x")
    assert gone.status == 2 and "snapshots" not in gone.err


def test_a_model_is_not_found_in_a_cache_that_lacks_a_part_of_it(hub, run, cache):
    name = f"me/x@{hub.commit('me/x', NO_MODEL)}"
    for _ in range(2):
        done = run("asr-info", name, **OFFLINE)
        assert done.status == 2 and "snapshots" not in done.err, done.err
        assert "local_files_only" not in done.err and "HF_HUB_OFFLINE" in done.err
        assert "snapshots" in run("asr-info", name).err and len(hub.served) >= 3
        next(cache.rglob(f"snapshots/*/{WEIGHTS}")).unlink()
        shutil.rmtree(next(cache.rglob("trees")))  # by which the client itself would see it
    served = len(hub.served)
    assert "snapshots" in run("asr-info", name).err and len(hub.served) >= served
    assert next(cache.rglob(f"snapshots/*/{WEIGHTS}")).exists()


def test_what_is_in_the_cache_needs_no_room(hub, run):
    hub.commit("me/x", NO_MODEL)
    assert "snapshots" in run("asr-info", "me/x").err
    hub.claims = {WEIGHTS: 1 << 60}
    for more in ({}, {"versions.json": b"{}"}):  # the same commit; another one of the same weights
        if more:
            hub.commit("me/x", NO_MODEL | more)
        done = run("asr-info", "me/x")
        assert f"snapshots/{hub.head('me/x')}" in done.err, done.err
    hub.commit("me/x", NO_MODEL | {WEIGHTS: b"other"})
    done = run("asr-info", "me/x")
    assert done.status == 2 and "1152921505 GB" in done.err and "HF_HOME" in done.err, done.err
    assert "parts" not in done.err


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


def test_an_address_is_a_folder_of_this_machine_in_full(tmp_path):
    for name in ("x#1", "x?y=1", "a b", "50%"):
        assert find_model(f"file://{tmp_path}/{name.replace('%', '%25')}") == f"{tmp_path}/{name}"
    for name in ("file://models/x", "file://localhost/x", "file://", f"file://{tmp_path}/%00"):
        with pytest.raises(UserError, match=r"file:///DIR") as refused:
            find_model(name)
        assert str(refused.value).startswith(name)


def test_a_folder_given_by_its_address_may_not_lead_out_of_itself(tmp_path):
    commit = tmp_path / "models--me--x/snapshots" / ("0" * 40)
    for folder in (tmp_path / "own", tmp_path / "own/source", commit, commit.parents[1] / "blobs"):
        folder.mkdir(parents=True, exist_ok=True)
    (tmp_path / "outside").write_text("x")
    (tmp_path / "own" / WEIGHTS).symlink_to(tmp_path / "own/weights")
    (commit / WEIGHTS).symlink_to("../../blobs/x")
    for folder in (tmp_path / "own", commit):
        assert find_model(f"file://{folder}") == str(folder)
    for name in ("config.yaml", "source/tokenizer.json"):
        link = tmp_path / "own" / name
        link.symlink_to(tmp_path / "outside")
        with pytest.raises(UserError, match="links out of") as refused:
            find_model(f"file://{tmp_path}/own")
        assert str(link) in str(refused.value)
        link.unlink()


def test_without_the_hub_s_client_a_folder_is_missing_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in ("huggingface_hub", "huggingface_hub.constants"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError) as refused:
        find_model("models/typo")
    assert str(refused.value).startswith("models/typo: no such folder")
    assert "pip install" in str(refused.value)


def test_a_published_language_model_is_found_in_python(recognizer, folder, tmp_path, monkeypatch):
    orders = kneser_ney.estimate([LETTERS.encode("AB CDA")], LETTERS.vocabulary, 2)
    kneser_ney.write_arpa(tmp_path / "lm.arpa", orders, LETTERS.symbols())
    published = {"me/lm": tmp_path / "lm.arpa"}
    monkeypatch.setattr("asr.api.find_model", lambda name: published.get(name, name))
    how = {"mode": "ctc", "beam": 4, "lm": "me/lm"}
    assert "lm" in asr.transcribe(recognizer, folder / "a.wav", **how).nbest[0].scores
    assert "lm" in asr.stream(recognizer, **how)._streams.prefixes.scorers
