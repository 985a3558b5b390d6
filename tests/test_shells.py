"""The recipes' shell wherever it runs: whatever awk and other tools there are, in odd places, with odd words.

Commands are stand-ins that note what they are asked, so a recipe runs within a moment; what it asks must be the same
everywhere. Expected are the words that it has on an ordinary machine, from the checkout's own folder.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small import rows

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    [*ROOT.glob("recipes/*/*.sh"), *ROOT.glob("recipes/*/*.sbatch"), *ROOT.glob("scripts/**/*.sh")]
)
RECIPES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("recipes/*/*.sh"))
ARGUMENTS = {  # what each recipe is given; folders stand beside the caller
    "recipes/aishell/mini.sh": "",
    "recipes/aishell/run.sh": "--corpus 'cor pus' --lm conf/lm.yaml training.epochs=2",
    "recipes/an4/run.sh": "'cor pus' --gpu training.epochs=2",
    "recipes/english/run.sh": "'cor pus' a=b 'cor pus'",
    "recipes/librispeech/run.sh": "--corpus 'cor pus' --ngram 3 --shar --name x.1",
    "recipes/mandarin/run.sh": "'cor pus'",
    "recipes/mini/run.sh": "training.epochs=2",
    "recipes/own/run.sh": "'cor pus/all.tsv' --name mine --normalize plain",
    "recipes/yesno/run.sh": "",
}
ARGUMENTS = {recipe: shlex.split(words) for recipe, words in ARGUMENTS.items()}
COMMANDS = [
    f"asr-{name}"
    for name in re.findall(r"\w+", "download prepare tokenizer train ngram decode score")
]
STAND_IN = """#!/bin/sh
{ printf '%s' "${0##*/}"; printf ' <%s>' "$@"; echo; } >>"$SAID"
case "${0##*/} $1 $2" in
    *shares.py*) echo "0.1 0.05" ;;
    *scaled.py*) echo "--kind bpe --size 9" ;;
    *"-m scripts.plan") cat >/dev/null ;;
    "$FAILS "*) exit 3 ;;
esac
"""
AWKS = ["mawk", "gawk", "original-awk", "busybox"]
TOOLS = re.findall(r"\w+", "awk sed grep dirname basename mktemp cat rm mkdir cksum head wc cut ls")
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
    for folder in ("recipes", "scripts", "conf"):
        shutil.copytree(
            ROOT / folder,
            place / "check out" / folder,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for parent, folders in yaml.safe_load(FOLDERS).items():
        for folder in folders:
            (place / parent / folder).mkdir(parents=True)
    (place / "caller/cor pus/all.tsv").touch()
    (place / "caller/cor pus/train.tsv").write_text("client_id\n")
    (place / "caller/cor pus/train/wav.scp").touch()
    (place / "bin").mkdir()
    for name in [*COMMANDS, "python"]:
        (place / "bin" / name).write_text(STAND_IN)
        (place / "bin" / name).chmod(0o755)
    return place


def run(place, recipe, *arguments, first=(), cwd="caller", **environment):
    """Run a recipe → (status, stderr, what the commands were asked)."""
    said = place / "said"
    said.unlink(missing_ok=True)
    path = os.pathsep.join(map(str, [*first, place / "bin", os.environ["PATH"]]))
    environment = {
        "PATH": path,
        "VIRTUAL_ENV": sys.prefix,
        "SAID": str(said),
        "FAILS": "none",
    } | environment
    ways = {"cwd": place / cwd, "env": os.environ | environment, "stdin": subprocess.DEVNULL}
    words = ["bash", os.path.relpath(place / "check out" / recipe, place / cwd), *arguments]
    done = subprocess.run(words, capture_output=True, text=True, **ways)
    asked = said.read_text().replace(f"{place / 'check out'}/", "") if said.exists() else ""
    return done.returncode, done.stderr, asked


def links(place, awk):
    """A folder in which `awk` is this one; of busybox's tools all that recipes might use."""
    folder = place / "tools"
    folder.mkdir()
    for tool in TOOLS if awk == "busybox" else ["awk"]:
        (folder / tool).symlink_to(shutil.which(awk))
    return folder


def test_every_recipe_is_tried():
    assert list(ARGUMENTS) == RECIPES


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("awk", AWKS)
def test_a_recipe_asks_the_same_whatever_the_tools(place, recipe, awk):
    if not shutil.which(awk):
        pytest.skip(f"{awk} is not installed: apt-get install {awk}")
    expected = run(place, recipe, *ARGUMENTS[recipe])
    assert expected[0] == 0 and "asr-decode" in expected[2], expected[1]
    assert run(place, recipe, *ARGUMENTS[recipe], first=[links(place, awk)]) == expected


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_asks_the_same_from_anywhere_in_any_locale(place, recipe):
    expected = run(place, recipe, *ARGUMENTS[recipe])
    (place / "elsewhere/scripts").mkdir(parents=True)  # to which a CDPATH would lead
    (place / "elsewhere" / recipe).parent.mkdir(parents=True)
    locales = subprocess.run(["locale", "-a"], capture_output=True, text=True).stdout.split()
    odd = {
        "CDPATH": f"{place / 'elsewhere'}:{place}",
        "LC_ALL": next((x for x in locales if x[:5] == "de_DE"), "C"),
    }
    odd |= dict.fromkeys(
        ("dry_run", "settings", "places", "gpus", "status"), "x"
    )  # somebody's own variables
    assert run(place, recipe, *ARGUMENTS[recipe], **odd) == expected
    (place / "caller/check out").symlink_to(place / "check out")
    moved = [
        str(place / "caller" / word) if (place / "caller" / word).exists() else word
        for word in ARGUMENTS[recipe]
    ]
    assert run(place, recipe, *moved, cwd="check out", **odd) == expected
    assert not [
        path
        for path in (place / "caller").iterdir()
        if path.name not in ("cor pus", "a=b", "check out")
    ]


def test_the_words_of_a_recipe(place):
    """One whole, by hand: corpora and settings with spaces and signs arrive as they were given."""
    status, err, said = run(
        place, "recipes/own/run.sh", "cor pus/all.tsv", "--name", "mine", "a.b=[1, 2]"
    )
    table, train = (
        place / "caller/cor pus/all.tsv",
        "<--gpus> <all> <--config> <exp/mine/config.yaml>",
    )
    train += (
        " <out=exp/mine/model> <tokenizer=exp/mine/tokenizer> <data.train=data/mine/train.jsonl.gz>"
    )
    train += " <data.dev=data/mine/dev.jsonl.gz> <a.b=[1, 2]>"
    test, model = "<data/mine/test.jsonl.gz>", "<exp/mine/test.txt>"
    assert (status, err) == (0, "") and said.splitlines() == [
        f"python <-m> <scripts.tables> <data/mine-tables> <train={table}>",
        "python <recipes/own/shares.py> <data/mine-tables>",
        "asr-prepare <tsv> <data/mine-tables> <data/mine> <--dev> <0.05> <--test> <0.1>",
        "python <recipes/own/scaled.py> <data/mine> <exp/mine>",
        "asr-tokenizer <data/mine/train.jsonl.gz> <data/mine/dev.jsonl.gz> <exp/mine/tokenizer> <--kind> <bpe> "
        "<--size> <9>",
        f"asr-train <--check> <--test> {test} {train}",
        f"asr-train {train}",
        f"asr-decode <--model> <exp/mine/model> <--manifest> {test} <--out> {model}",
        f"asr-score {test} {model}",
        f"python <-m> <scripts.result> <mine> <test> <joint> {test} {model} <data/mine> <exp/mine/tokenizer> "
        "<exp/mine/model>",
    ]


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_could_not_be_prepared_is_told_at_the_end(place, recipe):
    expected = run(place, recipe, *ARGUMENTS[recipe])
    status, err, said = run(place, recipe, *ARGUMENTS[recipe], FAILS="asr-prepare")
    assert (
        status == 3
        and "without the recordings that asr-prepare could not use" in err.splitlines()[-1]
    )
    assert said.splitlines()[:-1] == expected[2].splitlines()[: len(said.splitlines()) - 1]
    assert (
        recipe == "recipes/mini/run.sh" or said == expected[2]
    )  # which then has nothing to listen to


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_was_not_decoded_is_not_scored(place, recipe):
    status, err, said = run(place, recipe, *ARGUMENTS[recipe], FAILS="asr-decode")
    asked = [line.split()[0] for line in said.splitlines()]
    assert status == 3 and "nothing is scored" in err.splitlines()[-1]
    assert asked[-1] == "asr-decode" and asked.count("asr-decode") == 1


@pytest.mark.parametrize("recipe", RECIPES)
def test_help_is_the_head_of_the_recipe_and_needs_no_environment(place, recipe):
    bare = {"PATH": os.defpath, "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
    for option in ("--help", "-h"):
        script = place / "check out" / recipe
        words = ["bash", script, "no-such-corpus", option]
        done = subprocess.run(
            words, env=os.environ | bare, cwd=place / "caller", capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
    known = re.search(r'(?m)^options "([^"]*)"', script.read_text())[1].split()
    assert recipe in done.stdout and all(f"--{name.rstrip('!')}" in done.stdout for name in known)
    assert not (place / "check out/.venv").exists() and "set -e" not in done.stdout


@pytest.mark.parametrize(
    "name", ["", "a b", "../x", "a/b", "-n", ".", "..", ".hidden", "a=b", "a,b", "a\nb", "$x"]
)
@pytest.mark.parametrize("recipe", ["own", "librispeech", "aishell"])
def test_a_name_that_is_no_folders_is_refused(place, recipe, name):
    if recipe != "own" and not name:
        return  # the YAML's
    arguments = [
        word
        for word in ARGUMENTS[f"recipes/{recipe}/run.sh"]
        if word not in ("--name", "mine", "x.1")
    ]
    status, err, said = run(place, f"recipes/{recipe}/run.sh", *arguments, "--name", name)
    assert (status, said) == (2, "") and err.startswith(
        f"run.sh: --name '{name}': expected letters"
    )


MISTAKES = """
    an4 'cor pus' other       | run.sh: got {here}/cor pus {here}/other, expected [AN4_DIR]
    an4 --dry-run             | run.sh: no such option --dry-run; --help lists them
    yesno -x                  | run.sh: no such option -x; --help lists them
    yesno 'cor pus' --        | run.sh: no such option --; --help lists them
    english 'cor pus'         | run.sh: got {here}/cor pus, expected SPEECHOCEAN_DIR COMMON_VOICE_DIR AN4_DIR
    mandarin                  | run.sh: got nothing, expected COMMON_VOICE_DIR; see --help
    mandarin 'cor pus' data.dev=x | run.sh: data.dev=x: the recipe sets data.dev itself
    mini 'cor pus'            | run.sh: cor pus: expected key.path=value, as in training.epochs=50
    own 'cor pus/all.tsv' --gpus two | run.sh: --gpus two: expected a number of GPUs, or all
    own 'cor pus/all.tsv' --gpus 0 | run.sh: --gpus 0: expected a number of GPUs, or all
    own 'cor pus/all.tsv' --name | run.sh: --name: expected a value
    librispeech --gpu 1       | run.sh: no such option --gpu; --help lists them
"""


@pytest.mark.parametrize("words, message", rows(MISTAKES))
def test_mistakes_are_one_line(place, words, message):
    recipe, *words = shlex.split(words)
    status, err, said = run(place, f"recipes/{recipe}/run.sh", *words)
    assert (status, said) == (2, "") and err.startswith(message.format(here=place / "caller"))
    assert len(err.splitlines()) == 1


# What differs from one machine to the next: awk and sed; arrays and strings of bash 4 (macOS has 3.2); GNU's options
UNEVEN = re.compile(
    r"\b([gmn]?awk|sed|mapfile|readarray|realpath|tac|seq|shuf|numfmt|timeout|md5sum|sha256sum)\b|local -n"
    r"|wait -n|=~ \S*\(|declare -[Ag]|\|&|&>>|;;&|\$\{\w+(\[[@*]\])?(\^|,)|\$\{\w+@\w|readlink -f|date -[dI]|grep -\w*P"
    r"|mktemp -\w*p"
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_has_nothing_that_machines_read_differently(script):
    code = [
        line.partition(" # ")[0]
        for line in script.read_text().splitlines()
        if not line.lstrip().startswith("#")
    ]
    assert not [line for line in code if UNEVEN.search(line)]
    unguarded = re.compile(
        r'(?<!\+)"\$\{(settings|places|unit|options|carve|texts|decoded)\[@\]\}"'
    )
    assert not [line for line in code if unguarded.search(line) and "texts" not in line], (
        "bash 3.2 calls it unbound"
    )


def test_what_machines_read_differently_is_found():
    found = [
        "x=$(awk 1)",
        "mapfile -t a < b",
        "echo ${x,,}",
        "a |& b",
        "declare -A m",
        "sed -i s/a/b/ c",
        "echo ${a[@]^}",
    ]
    assert all(UNEVEN.search(line) for line in found)
    assert not UNEVEN.search(
        'step asr-decode --out "$exp/$set.txt" ${unit[@]+"${unit[@]}"} && wait "$recipe"'
    )
