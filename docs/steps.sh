#!/usr/bin/env bash
# Profiles the reference models on this machine and writes docs/steps.md: where the time of a whole step goes. Two minutes of an otherwise
# idle machine.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ws=${WS:-$root/build/wholestep}

section() {  # TITLE OPTIONS..
  printf '\n## %s\n\n```\n' "$1"
  "$ws" inspect --show kernels "${@:2}" | awk '/^kind /{ on = 1 } on'
  printf '```\n'
}

report() {
  cat <<'TEXT'
# Where the time of a step goes

<!-- written by docs/steps.sh -->

Each kernel of the compiled step is timed by itself (`wholestep inspect --profile`), the least of three runs, and added up by kind.
`of roof` is the least time that the peak of multiply-adds and the bandwidth of memory allow over the time taken; updates of parameters
run in the store of the products that make their gradients.

TEXT
  printf 'Machine: %s, %s cores.\n' "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
  for dtype in fp32 bf16; do
    section "MLP 4 x 512, batch 256, $dtype" --model mlp --dtype "$dtype"
    section "Encoder 4 x 256, sequence 128, batch 32, $dtype" --model encoder --dtype "$dtype"
    section "GPT 6 x 512, sequence 128, batch 64, $dtype" --model gpt --dtype "$dtype"
  done
}

report >"$root/docs/steps.md.new"
mv "$root/docs/steps.md.new" "$root/docs/steps.md"
