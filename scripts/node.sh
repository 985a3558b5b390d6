#!/usr/bin/env bash
# One machine's share of a training on several: torchrun with these arguments. A scheduler's SIGUSR1, at which the
# training processes save their state, would kill torchrun and leave them behind; so it ignores it.
set -euo pipefail
trap '' USR1
exec torchrun "$@"
