#!/usr/bin/env bash
# One machine's share of a training on several machines: torchrun with these arguments. A scheduler's SIGUSR1 tells the
# training processes to save. It would kill torchrun and orphan them, so torchrun ignores it.
set -euo pipefail
trap '' USR1
exec torchrun "$@"
