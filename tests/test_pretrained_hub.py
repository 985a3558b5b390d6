"""Prove what is downloaded of a pretrained encoder on the hub, by its own client against a stand-in (hub.py).

Descriptions come first. Weights come only after those were read and the disk has room, and no more of them than are
read. What was asked for is seen by the server.
"""

import json
import re

import pytest
import sources
from hub import Hub
from refusals import refused
from runs import experiment
from small import rows
from tones import CONFIG

from asr.hub import cache as hub_cache
from asr.nn.encoders import pretrained_source as source
from asr.nn.encoders.pretrained import read_architecture
from asr.tasks import pretrained_hub
from asr.tasks.pretrained_hub import download_weights, find

transformers = pytest.importorskip("transformers")
each = pytest.mark.parametrize
NAME = "who/what"
SHARDS = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
DESCRIBED = [source.DESCRIPTION, source.PREPROCESSOR]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of a model, by name, and more that nobody needs."""
    path = tmp_path_factory.mktemp("made") / "model"
    sources.write_source(path, "model_type: wavlm", 8000)
    made = {file.name: file.read_bytes() for file in path.iterdir()}
    return made | {"README.md": b"x", "code.py": b"x", "pytorch_model.bin": b"x"}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with Hub() as hub:
        for name, value in (
            ("ENDPOINT", hub.url),
            ("HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"),
            ("HF_HUB_CACHE", str(tmp_path / "cache")),
            ("HF_HUB_DISABLE_XET", True),
        ):
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        yield hub


def served(hub):
    """The files that were asked for since the last call."""
    names = sorted({name for name, _ in hub.served})
    hub.served.clear()
    return names


def sharded(files):
    """The same weights in two files, and an index."""
    from safetensors.torch import load, save

    tensors = load(files[source.WEIGHTS])
    halves = [dict([*tensors.items()][n::2]) for n in (0, 1)]
    found = {name: save(half) for name, half in zip(SHARDS, halves, strict=True)}
    index = {name: SHARDS[n % 2] for n, name in enumerate(tensors)}
    return found | {source.INDEX: json.dumps({"weight_map": index}).encode()}


def settings(root, *changes):
    """Of a training with this source; there is no corpus."""
    text = re.sub("encoder: .*", f"encoder: {{{{kind: pretrained, source: {NAME}}}}}", CONFIG)
    text = re.sub("(features:)\n.*\n.*\n", r"\1 {{waveform: {{sample_rate: 8000}}}}\n", text)
    (root / "x.yaml").write_text(text.format(root=root))
    return experiment(root, *changes)


def test_a_source_is_read_from_the_cache_and_its_commit_written_down(
    hub, files, tmp_path, monkeypatch, capsys
):
    commit = hub.commit(NAME, files)
    encoder = settings(tmp_path).resolved().model.encoder
    assert encoder.revision == commit and served(hub) == sorted([*DESCRIBED, source.WEIGHTS])
    log = capsys.readouterr().err
    assert all(word in log for word in (f"{NAME}@{commit}", "wavlm", "kB"))
    hub.commit(NAME, files | {source.DESCRIPTION: b"{}"})  # which is none of this training's
    assert not encoder.build(1).load_source()
    assert (
        settings(tmp_path, f"model.encoder.revision={commit}").resolved().model.encoder == encoder
    )
    assert served(hub) == []


def test_without_a_network_the_cache_is_taken(hub, files, tmp_path, monkeypatch):
    commit = hub.commit(NAME, files)
    refused(
        "who/else: no such folder here, and the Hugging Face Hub doesn't", find, "who/else", None
    )
    settings(tmp_path).resolved()
    with monkeypatch.context() as offline:
        offline.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        served(hub)
        assert settings(tmp_path).resolved().model.encoder.revision == commit
        refused("who/else: no such folder here", find, "who/else", None)
        assert served(hub) == []
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert settings(tmp_path).resolved().model.encoder.revision == commit
    refused(
        "who/else: no such folder here, and the Hugging Face Hub doesn't", find, "who/else", None
    )
    refused("who/what: no such folder here, and the Hugging Face Hub doesn't", find, NAME, "v2")


def test_a_folder_of_the_cache_is_a_source_and_its_links_lead_no_farther(files, tmp_path):
    """As snapshot_download returns it, and as someone copies the cache to a machine without a network."""
    kept = tmp_path / "models--a--b/blobs"
    folder = tmp_path / "models--a--b/snapshots" / ("0" * 40)
    for path in (kept, folder):
        path.mkdir(parents=True)
    for name in (*DESCRIBED, source.WEIGHTS):
        (kept / name).write_bytes(files[name])
        (folder / name).symlink_to(f"../../blobs/{name}")
    found = source.find(str(folder))
    assert found.description() == json.loads(files[source.DESCRIPTION])
    assert found.preprocessing() == (source.PREPROCESSOR, json.loads(files[source.PREPROCESSOR]))
    assert found.tensors()
    (tmp_path / "elsewhere.json").write_text("{}")
    (folder / source.DESCRIPTION).unlink()
    (folder / source.DESCRIPTION).symlink_to("../../../elsewhere.json")
    refused("out of its folder; never read", found.description)


@each("both", [False, True])
def test_no_weights_are_taken_twice(hub, files, both):
    """One file, if there is one; else the parts that the index names, and no others."""
    other = "model-00003-of-00003.safetensors"
    rest = {name: data for name, data in files.items() if both or name != source.WEIGHTS}
    hub.commit(NAME, rest | sharded(files) | {other: b"x"})
    found = find(NAME, None)
    assert served(hub) == sorted([*DESCRIBED, *[source.INDEX] * (not both)])
    download_weights(found, "wavlm")
    assert served(hub) == ([source.WEIGHTS] if both else SHARDS)
    assert found.parts() == ([source.WEIGHTS] if both else SHARDS)
    download_weights(find(NAME, found.commit), "wavlm")
    assert found.tensors() and served(hub) == []


def test_what_is_missing_of_a_stopped_download_comes_next_time(hub, files):
    rest = {name: data for name, data in files.items() if name != source.WEIGHTS}
    hub.commit(NAME, rest | sharded(files))
    found = find(NAME, None)
    (found.folder / source.INDEX).unlink()
    download_weights(found, "wavlm")
    (found.folder / SHARDS[1]).unlink()
    download_weights(found, "wavlm")
    assert found.tensors()


CHANGES = """
auto_map wants              | config.json | {"model_type": "wavlm", "auto_map": {"AutoModel": "m.M"}}
'bert' isn't supported      | config.json | {"model_type": "bert"}
isn't JSON                  | config.json | {
hidden_size                 | config.json | {"model_type": "wavlm", "hidden_size": 1000000000}
expected 8000000 or less    | config.json | HUGE
expected 8000000 or less    | processor_config.json | HUGE
expected config.json        | config.json | NONE
pickles, which.*never read  | model.safetensors | NONE
got 8000, expected 16000    | preprocessor_config.json | {"sampling_rate": 16000, "do_normalize": true}
got 8000, expected 1.*  | processor_config.json | {"feature_extractor": {"sampling_rate": 16000, "do_normalize": false}}
"""


@each("message, name, content", rows(CHANGES))
def test_no_weights_are_downloaded_of_what_cannot_be_trained(
    hub, files, tmp_path, message, name, content
):
    changed = files | {name: content.encode()}
    if content == "NONE":
        del changed[name]
    if content == "HUGE":
        hub.claims[name] = 1 << 40
    hub.commit(NAME, changed)
    refused(message, settings(tmp_path).resolved)
    assert not [name for name in served(hub) if name.endswith((".safetensors", ".bin", ".py"))]
    if content in ("HUGE", "NONE"):
        assert not list(tmp_path.glob("cache/**/*.json"))


def test_weights_that_the_disk_has_no_room_for_are_not_downloaded(hub, files, monkeypatch):
    hub.claims[source.WEIGHTS] = 1 << 60
    hub.commit(NAME, files)
    found = find(NAME, None)
    read_architecture(found)
    served(hub)
    refused("of disk space, but .* are free", download_weights, found, "wavlm")
    hub.claims.clear()
    monkeypatch.setattr(hub_cache, "free", lambda _: len(files[source.WEIGHTS]) - 1)
    refused("of disk space, but .* are free", download_weights, found, "wavlm")
    assert served(hub) == []
    monkeypatch.setattr(hub_cache, "free", lambda _: len(files[source.WEIGHTS]))
    download_weights(found, "wavlm")
    assert served(hub) == [source.WEIGHTS]


def test_an_index_that_names_what_there_is_not_is_refused(hub, files):
    rest = {name: data for name, data in files.items() if name != source.WEIGHTS}
    hub.commit(NAME, rest | sharded(files) | {SHARDS[0]: b""})
    del hub.files(NAME)[SHARDS[0]]
    refused(f"has no {SHARDS[0]}", download_weights, find(NAME, None), "wavlm")
    assert not set(served(hub)) & {*SHARDS}


def test_all_files_are_of_the_commit_that_was_listed(hub, files, monkeypatch):
    """Though the branch moves meanwhile; the disk was measured for that commit's."""
    commit = hub.commit(NAME, files)
    listed = pretrained_hub._listed(NAME, None)
    hub.commit(NAME, files | {source.DESCRIPTION: b"{}"})
    monkeypatch.setattr(pretrained_hub, "_listed", lambda *_: listed)
    found = find(NAME, None)
    assert found.commit == commit and found.description()["model_type"] == "wavlm"
