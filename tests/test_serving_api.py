"""What the HTTP API answers: what OpenAI's own client gets, in every format, and what each field may say.

What is expected of transcripts is what `asr.transcribe` gives for the same file. The recognizer is that of
spoken.py, whose letters are tones.
"""

import json
import logging
import re

import numpy as np
import openai
import pysubs2
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from posted import OPTIONS, PATH, TEXT, WAV, application, error_of, send, sound
from refusals import refused
from runs import status_of
from small import each, near, rows, slow
from spoken import HOW, say

from asr.cli import serve as command
from asr.serving.app import create_app
from asr.serving.engine import Bounds, Engine
from asr.serving.options import ServingOptions


@pytest.fixture(scope="module")
def expected(transcribed):
    return transcribed(WAV)


@pytest.fixture(scope="module")
def create(address):
    """OpenAI's client, asked for a transcript."""
    with openai.OpenAI(base_url=f"http://{address}/v1", api_key="any", max_retries=0) as made:
        ask = made.audio.transcriptions.create
        yield lambda content=WAV, **more: ask(file=("a.wav", content), model="x", **more)


def test_json_and_text(create, expected):
    found = create(language="en", temperature=0)
    assert found.text == expected.text and found.model == "tones"
    assert found.usage.type == "duration" and found.usage.seconds == 5
    assert create(response_format="text", prompt="Hm,") == expected.text + "\n"


@each("kind", ["srt", "vtt"])
def test_subtitles(create, expected, kind):
    cues = pysubs2.SSAFile.from_string(create(response_format=kind), format_=kind)
    assert " ".join(cue.plaintext for cue in cues).split() == expected.text.split()
    assert abs(cues[0].start / 1000 - expected.segments[0].start) < 0.01


@each("wanted", [["word"], ["segment"], ["word", "segment"]])
def test_verbose_json(create, expected, wanted):
    strategy = {"type": "server_vad", "threshold": 0.4}
    how = {"response_format": "verbose_json", "chunking_strategy": strategy}
    found = create(timestamp_granularities=wanted, **how)
    words = [w for part in expected.segments for w in part.words]
    assert found.text == expected.text and abs(found.duration - expected.duration) < 1e-3
    assert bool(found.segments) == ("segment" in wanted)
    if "word" in wanted:
        near([(w.start, w.end) for w in found.words], [(w.start, w.end) for w in words], 6e-4)
        assert [w.word for w in found.words] == [w.text for w in words]
    for got, part in zip(found.segments or [], expected.segments, strict=False):
        assert (got.text, got.tokens) == (part.text, part.nbest[0].tokens)
        near(np.exp(got.avg_logprob), part.confidence, 1e-6)


def test_logprobs(create, expected):
    found = create(include=["logprobs"]).logprobs
    assert "".join(one.token for one in found).split() == expected.text.split()
    near([np.exp(one.logprob) for one in found], expected.segments[0].nbest[0].confidences, 1e-6)


def test_streams_of_events(create, expected):
    delta, done = create(stream=True)
    assert (delta.type, done.type) == ("transcript.text.delta", "transcript.text.done")
    assert delta.delta == done.text == expected.text


def test_hotwords_and_the_model_s_own_case(create, transcribed):
    """Each keyword is a hotword; small letters are taken to the model's capitals."""
    expected = transcribed(WAV, hotwords=("CDA", "E B"))
    assert create(keywords=["cda", "E B"]).text == expected.text


def test_errors_are_openai_s(create):
    caught = pytest.raises(openai.BadRequestError, create, b"")
    assert caught.value.param == "file" and caught.value.code == "invalid_audio"


def test_several_models_are_told_apart(recognizer):
    engines = {"one": Engine(recognizer, HOW), "two": Engine(recognizer, HOW)}
    with TestClient(create_app(engines, OPTIONS)) as client:
        answer = send(client, model="whisper-1")
        assert answer.status_code == 404 and "one, two" in error_of(answer)["message"]
        assert send(client, model="two").json()["model"] == "two"
        listed = client.get("/v1/models").json()["data"]
        assert [(one["id"], one["live"]) for one in listed] == [("one", True), ("two", True)]
        assert client.get("/v1/models/two").json()["id"] == "two"
        assert client.get("/v1/models/three").status_code == 404


def test_long_files_come_by_and_by(short, transcribed):
    content = sound(say(TEXT * 8))
    engine = Engine(short, HOW, bounds=Bounds(batch_seconds=4.0))
    with TestClient(create_app({"a": engine}, ServingOptions())) as client:
        answer = send(client, content, stream="true")
    *deltas, done = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line]
    assert {one["type"] for one in deltas} == {"transcript.text.delta"} and len(deltas) > 3
    text = "".join(one["delta"] for one in deltas)
    assert text == done["text"] == transcribed(content, short).text


FIELDS = """
response_format=xml                          | 400 | response_format
response_format=                             | 400 | response_format
response_format=JSON                         | 400 | response_format
response_format=diarized_json                | 400 | response_format
response_format=../../etc/passwd             | 400 | response_format
temperature=hot                              | 400 | temperature
temperature=-1                               | 400 | temperature
temperature=nan                              | 400 | temperature
temperature=inf                              | 400 | temperature
temperature=1e999                            | 400 | temperature
temperature=3                                | 400 | temperature
timestamp_granularities[]=word               | 400 | timestamp_granularities
timestamp_granularities[]=letter&response_format=verbose_json | 400 | timestamp_granularities
include[]=logprobs&response_format=text      | 400 | include
include[]=everything                         | 400 | include
include[]=logprobs&include[]=logprobs        | 400 | include
stream=perhaps                               | 400 | stream
stream=true&response_format=srt              | 400 | stream
stream=true&response_format=verbose_json     | 400 | stream
nbest=0                                      | 400 | nbest
nbest=11                                     | 400 | nbest
nbest=-1                                     | 400 | nbest
nbest=1.5                                    | 400 | nbest
nbest=99999999999999999999999999             | 400 | nbest
nbest=3                                      | 400 | nbest
language=english please                      | 400 | language
language=../..                               | 400 | language
language=<script>                            | 400 | language
keywords[]=                                  | 400 | keywords
keywords[]=ЖЖЖ                               | 400 | keywords
keywords[]=A\tinf                            | 400 | keywords
keywords[]=A\x1b[2J                          | 400 | keywords
keywords[]=$LONG                             | 400 | keywords
chunking_strategy=server_vad                 | 400 | chunking_strategy
chunking_strategy={"type": "server_vad", "threshold": 2}  | 400 | chunking_strategy
chunking_strategy={"type": "none"}           | 400 | chunking_strategy
chunking_strategy={"type": "server_vad", "x": 1}          | 400 | chunking_strategy
chunking_strategy={                          | 400 | chunking_strategy
chunking_strategy=$DEEP                      | 400 | chunking_strategy
chunking_strategy[type]=none                 | 400 | chunking_strategy
chunking_strategy[]=auto                     | 400 | chunking_strategy
chunking_strategy[threshold]=1e400&chunking_strategy[type]=server_vad | 400 | chunking_strategy
known_speaker_names[]=Ann                    | 400 | known_speaker_names[]
path=/etc/passwd                             | 400 | path
model_path=/etc                              | 400 | model_path
hotwords=/etc/passwd                         | 400 | hotwords
lm=/etc                                      | 400 | lm
device=cuda                                  | 400 | device
__class__=x                                  | 400 | __class__
model_config=x                               | 400 | model_config
beam=1000000                                 | 400 | beam
response_format=json&response_format=text    | 400 | response_format
model=$LONG                                  | 400 | model
prompt=$LONG$LONG                            | 400 | prompt
model=../../etc/passwd                       | 200 | -
model=whisper-1'; DROP TABLE models; --      | 200 | -
model=a\0b                                   | 200 | -
language=en&languages[]=en&prompt=x&temperature=0.2&chunking_strategy=auto | 200 | -
chunking_strategy={"type": "server_vad", "silence_duration_ms": 300} | 200 | -
keywords[]=a&keywords[]=A&keywords[]=b       | 200 | -
"""


@each("fields, status, param", rows(FIELDS))
def test_fields(client, fields, status, param):
    data, written = {}, {"\\t": "\t", "\\x1b": "\x1b", "\\0": "\0"}
    for pair in fields.split("&"):
        name, _, value = pair.partition("=")
        for old, new in (written | {"$LONG": "x" * 15_000, "$DEEP": '{"a":' * 5000}).items():
            value = value.replace(old, new)
        data.setdefault(name, []).append(value)
    answer = send(client, **data)
    assert answer.status_code == int(status), answer.text
    if status != "200":
        error = error_of(answer)
        assert error["param"] == param and error["type"] == "invalid_request_error"
        assert len(error["message"]) < 300 and "/tmp" not in error["message"]


def test_logs_and_metrics_say_nothing_of_what_was_said(client, caplog):
    caplog.set_level(logging.INFO, "asr")
    text = send(client, prompt="geheim", model="geheim").json()["text"]
    client.get("/v1/models/geheim?geheim=geheim")
    line = json.loads(caplog.messages[0])
    assert line["route"] == PATH and line["status"] == 200 and line["audio"] > 4
    everything = client.get("/metrics").text + "\n".join(caplog.messages)
    assert "geheim" not in everything and text not in everything
    assert re.search(r'asr_audio_seconds_total\{model="tones"\} [1-9]', everything)
    assert re.search(r'asr_batch_size_count\{model="tones"\} [1-9]', everything)
    assert f'asr_requests_total{{route="{PATH}",status="200"}}' in everything


REFUSED = """
--host 0.0.0.0                 | --host: got 0.0.0.0
--host ::                      | --host: got ::
--host asr.example.org         | --host: got asr.example.org
--certfile a.pem               | --certfile and --keyfile
--certfile a --keyfile b       | no such file
--port 70000                   | --port
--max-megabytes 0              | --max-megabytes
--batch-seconds 0              | --batch-seconds
--model nowhere                | no such model folder
--mode ctc-greedy --lm x       | --mode
"""


@each("arguments, message", rows(REFUSED))
def test_the_command_refuses(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.delenv("ASR_TOKEN", raising=False)
    model = [] if "--model" in arguments else ["--model", tmp_path]
    assert status_of(command.main, *model, *arguments.split()) == 2
    assert message in capsys.readouterr().err


def test_names_of_models(tmp_path):
    for name in ("exp/a/model", "exp/b", "x"):
        (tmp_path / name).mkdir(parents=True)
    given = f"{tmp_path}/exp/a/model {tmp_path}/exp/b c={tmp_path}/x".split()
    assert list(command.named(given)) == ["a", "b", "c"]
    refused("name of its own", command.named, [*given, f"a={tmp_path}/x"])


@slow
def test_schemathesis_finds_no_fault(recognizer):
    """It makes requests from the OpenAPI, right and wrong ones: none may end in a 500, nor in what isn't described."""
    app = application(recognizer)
    with TestClient(app, raise_server_exceptions=False):
        schema = schemathesis.openapi.from_asgi("/openapi.json", app)
        for operation in schema.get_all_operations():

            @settings(max_examples=40, suppress_health_check=list(HealthCheck))
            @given(case=operation.ok().as_strategy())
            def check(case):
                assert case.call().status_code < 500

            check()
