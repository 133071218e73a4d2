#!/usr/bin/env bash
# Measures on this machine and rewrites the part of README.md between its "measured" marks. About ten minutes, on an idle machine.
# MINUTES=10 also trains that long and shows what the model then writes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ws=${WS:-$root/build/wholestep}
minutes=${MINUTES:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

field() { grep -oE "\"$2\":[^,}]*" "$1" | head -n 1 | cut -d: -f2-; }
middle() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# bench_row MODEL LABEL STEPS ROUNDS: loop, compiled and compiled in bf16 in turn, medians; the ratios of each round, then the medians
# of those.
bench_row() {
  local i
  : >"$work/loop"; : >"$work/compiled"; : >"$work/bf16"; : >"$work/ratio"; : >"$work/narrow"
  time_one() { "$ws" bench --model "$model" --steps "$steps" --warmup 1 --json "${@:2}" >"$work/$1.json"; field "$work/$1.json" median_ms >>"$work/$1"; }
  local model=$1 steps=$3
  for i in $(seq "$4"); do
    time_one loop --mode loop
    time_one compiled
    time_one bf16 --dtype bf16
    paste <(tail -n 1 "$work/loop") <(tail -n 1 "$work/compiled") | awk '{ print $1 / $2 }' >>"$work/ratio"
    paste <(tail -n 1 "$work/compiled") <(tail -n 1 "$work/bf16") | awk '{ print $1 / $2 }' >>"$work/narrow"
  done
  "$ws" bench --model "$1" --steps 2 --warmup 0 --cache 0 --json >"$work/cold.json"
  printf '| %s | %.4g | %.4g | %.3g | %.4g | %.3g | %.0f | %.0f |\n' "$2" "$(middle <"$work/loop")" "$(middle <"$work/compiled")" \
    "$(middle <"$work/ratio")" "$(middle <"$work/bf16")" "$(middle <"$work/narrow")" "$(field "$work/cold.json" compile_ms)" \
    "$(field "$work/compiled.json" compile_ms)"
}

measured() {
  printf '`./run` (the quick ladder, whose rungs [docs/ladder.md](docs/ladder.md) explains; %s, %s threads, %s):\n\n```\n' "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)" \
    "$(nproc)" "$("$ws" bench --model tiny --steps 10 --json | grep -oE '"isa":"[^"]*"' | cut -d'"' -f4)"
  "$ws" ladder --preset quick 2>/dev/null | sed '1{/^$/d}'
  printf '```\n\nWhole training steps (`wholestep bench`; loop and compiled in fp32, compiled in bf16, in turn; medians, and of the ratios of the rounds):\n\n'
  printf '| model | loop, ms | compiled, ms | ratio | bf16, ms | fp32 / bf16 | compile, ms | from cache, ms |\n|---|---|---|---|---|---|---|---|\n'
  bench_row tiny 'MLP 8-16-1, batch 4' 20000 5
  bench_row mlp 'MLP 4 x 512, batch 256' 30 5
  bench_row encoder 'encoder 4 x 256, sequence 128, batch 32' 3 5
  bench_row gpt 'GPT 6 x 512, sequence 128, batch 64' 1 3
  if [ "$minutes" != 0 ]; then
    "$ws" train --minutes "$minutes" --batch 16 --width 256 --blocks 4 --lr 1e-3 --out "$work/run" --json >"$work/train.json" 2>/dev/null
    "$ws" generate --checkpoint "$work/run" --prompt "and the lord said " --tokens 600 --seed 1 >"$work/sample"
    "$ws" generate --checkpoint "$work/run" --prompt "and the lord said " --tokens 4000 --seed 2 >"$work/long"
    bible -f gen1:1-rev22:21 | tr -cs 'A-Za-z' '\n' | tr 'A-Z' 'a-z' | sort -u >"$work/words"
    tr ' ' '\n' <"$work/long" | grep -E '^.{3,}$' >"$work/written"
    printf '\nAfter %s minutes of `wholestep train` (width 256, 4 blocks, %s steps, validation loss %.3f) `generate` writes, and %.0f %% of its words of three\nletters and more occur in the corpus:\n\n```\n' \
      "$minutes" "$(field "$work/train.json" steps)" "$(field "$work/train.json" validation_loss)" \
      "$(awk 'NR == FNR { known[$1]; next } { n++; if ($1 in known) k++ } END { print 100 * k / n }' "$work/words" "$work/written")"
    fold -s -w 120 "$work/sample" | sed 's/ *$//'
    printf '```\n'
  fi
}

measured >"$work/text"
awk -v text="$work/text" '
  /^<!-- end of measured -->/ { skip = 0 }
  !skip { print }
  /^<!-- measured: / { skip = 1; while ((getline line < text) > 0) print line }' "$root/README.md" >"$work/readme"
cp "$work/readme" "$root/README.md"
