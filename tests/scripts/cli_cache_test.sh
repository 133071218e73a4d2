#!/usr/bin/env bash
# Case C53, from outside: training with a shared, damaged or unwritable cache of compiled code gives the losses of one without, bit for bit.
set -euo pipefail
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
fail() { echo "$*"; exit 1; }

printf 'The quick brown fox jumps over the lazy dog and runs. %.0s' $(seq 30) >text.txt
# train OUT: a few steps; OUT.losses holds their losses, unrounded.
train() {
  "$WS" train --data text.txt --seq 16 --width 32 --blocks 1 --batch 4 --clip 1 --steps 5 --out "$1" --json >"$1.said" 2>"$1.notes" ||
    fail "training into $1 failed: $(cat "$1.notes")"
  grep -o '"loss":[^,}]*' "$1/metrics.jsonl" >"$1.losses"
  [ "$(wc -l <"$1.losses")" = 5 ] || fail "$1 has $(wc -l <"$1.losses") losses"
}
same() { cmp -s without.losses "$1.losses" || fail "$1 has other losses than a run without a cache"; cmp -s without/checkpoint/model.safetensors "$1/checkpoint/model.safetensors" || fail "$1 ends elsewhere"; }

WHOLESTEP_CACHE=0 train without

# (a) four processes on one empty folder
export XDG_CACHE_HOME=$work/cache
for p in 1 2 3 4; do train "process$p" & done
for job in $(jobs -p); do wait "$job" || exit 1; done
for p in 1 2 3 4; do same "process$p"; done
files=$(find cache -type f | sort)
[ "$(wc -l <<<"$files")" -ge 5 ] || fail "the cache holds only: $files"
train warm && same warm

# (b) every file cut to nothing, to half, filled with noise
damaged() {
  local kind=$1 file size
  for file in $files; do
    size=$(stat -c %s "$file")
    case $kind in
      empty) : >"$file" ;;
      half) truncate -s $((size / 2)) "$file" ;;
      noise) head -c "$size" /dev/urandom >"$file" ;;
    esac
  done
  train "$kind" && same "$kind"
}
for kind in empty half noise; do damaged $kind; done

# (c) a folder that cannot be written, empty and filled
mkdir locked
chmod -R a-w locked cache
XDG_CACHE_HOME=$work/locked train locked_empty && same locked_empty
train locked_full && same locked_full
XDG_CACHE_HOME=/proc/nowhere train nowhere && same nowhere  # root may write anywhere else
