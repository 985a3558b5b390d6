#!/usr/bin/env bash
# Make an environment for each peer of the benchmark: bash scripts/bench/environments.sh [espnet] [speechbrain] [joeynmt] [sherpa]
# They stand under .bench (about 6 GB each) and get the torch of the Python that runs our side, so that the same kernels
# work for all. ASR_PYTHON chooses that Python (default: python3), which must have the toolkit.
set -euo pipefail
unset CDPATH
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
python=$(command -v "${ASR_PYTHON:-python3}")
torch=$("$python" -c 'from importlib.metadata import version; print("torch==" + version("torch").split("+")[0])' \
    2>/dev/null) || { echo "environments: $python has no torch; activate the toolkit's environment" >&2 && exit 2; }

pip() { # NAME ARGUMENTS: pip of .bench/NAME
    ".bench/$1/bin/python" -m pip --quiet --disable-pip-version-check "${@:2}"
}

needs() { # NAME PACKAGE: what a package of .bench/NAME requires but for setuptools, whose pin excludes new torch
    ".bench/$1/bin/python" -c '
import sys
from importlib.metadata import requires
print(*(r for r in requires(sys.argv[1]) if "extra ==" not in r and not r.startswith("setuptools")), sep="\n")' "$2"
}

transformers() { # the version of our side, for pretrained encoders
    "$python" -c 'from importlib.metadata import version; print("transformers==" + version("transformers"))'
}

make() { # NAME PACKAGE==VERSION
    [ -x ".bench/$1/bin/python" ] || "$python" -m venv ".bench/$1"
    pip "$1" install --no-deps "$2"
    needs "$1" "$1" >".bench/$1/requirements.txt"
    pip "$1" install "$torch" "torchaudio==2.11.0" -r ".bench/$1/requirements.txt"
    ".bench/$1/bin/python" -c '
import platform, sys
from importlib.metadata import version
packages = ", ".join(f"{name} {version(name)}" for name in (sys.argv[1], "torch", "torchaudio", "numpy"))
print(f"{sys.prefix}: Python {platform.python_version()}, {packages}")' "$1"
}

[ $# -gt 0 ] || set -- espnet speechbrain
for peer; do
    case $peer in
    espnet) make espnet espnet==202511 && pip espnet install "$(transformers)" ;;
    joeynmt) # which imports one package more, and calls what newer sentencepieces lack
        make joeynmt joeynmt==2.3.0 && pip joeynmt install importlib_metadata sentencepiece==0.2.0
        ;;
    sherpa) # its servers are programs; onnx writes the model that they read
        [ -x .bench/sherpa/bin/python ] || "$python" -m venv .bench/sherpa
        pip sherpa install sherpa-onnx==2.0.1 sherpa-onnx-bin==2.0.1 onnx==1.23.2
        ;;
    speechbrain) make speechbrain speechbrain==1.1.2 && pip speechbrain install "$(transformers)" ;;
    *) echo "environments: $peer: no such peer; espnet, speechbrain, joeynmt or sherpa" >&2 && exit 2 ;;
    esac
done
