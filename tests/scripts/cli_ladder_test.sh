#!/usr/bin/env bash
# The ladder: every rung on a tiny model, its report, refusals, and compare.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME=$work/cache
fail() { echo "$*"; exit 1; }
has() { grep -qF -- "$2" "$1" || fail "$1 lacks $2: $(cut -c1-2000 "$1")"; }

for i in $(seq 400); do printf 'and the word of the lord came unto me the %d time saying\n' "$i"; done >text.txt
printf '{"type": "gpt", "vocab_size": 28, "num_hiddens": 32, "num_blks": 2, "num_heads": 4, "max_len": 32}' >small.json

"$WS" ladder --model small.json --text text.txt --seq 32 --steps 60 --rounds 1 --rungs R0,R1,R2,R3,R4,R6 --out climbed --json >ladder 2>progress
for rung in R0 R1 R2 R3 R4 "R2 naive" "R2 leak" "R3 control" "R4 budget"; do has ladder "\"rung\":\"$rung\""; done
for key in tokens_per_s ratio predicted planned_temp_bytes gflops_achieved classification; do has ladder "\"$key\":"; done
has ladder '"what":"matmul_precision = high"'
has ladder '"logits_bit_identical":true'
has ladder '"losses_bit_identical":true'
has ladder '"falls":true'
grep -q '^R1 .*predicted' progress || fail "no prediction was printed: $(cat progress)"
[ "$(grep -n '^R2 bf16.*predicted' progress | cut -d: -f1)" -lt "$(grep -n '^R2 bf16.*measured' progress | cut -d: -f1)" ] ||
  fail "R2 was measured before it was predicted: $(cat progress)"
for file in ladder.json ladder.svg ladder.html checkpoint/config.json; do [ -s "climbed/$file" ] || fail "--out lacks $file"; done
has climbed/ladder.svg "</svg>"
has climbed/ladder.html "prefers-color-scheme: dark"
grep -qE '(src|href)="?http' climbed/ladder.html && fail "the page asks for something from outside"
"$WS" generate --checkpoint climbed --prompt "and " --tokens 5 >/dev/null || fail "generate cannot read the ladder's checkpoint"

"$WS" train --data text.txt --out climbed >said 2>notes && fail "train replaced a ladder"
has notes "climbed holds a ladder: give another --out, or replace its checkpoint by --overwrite"

# The other models; compare.
for model in encoder mlp; do
  rounds=$([ $model = mlp ] && echo 2 || echo 1)
  "$WS" ladder --model $model --seq 16 --steps 40 --rounds $rounds --rungs R0,R1,R2 --out $model >table 2>progress || fail "--model $model: $(cat progress)"
  has table "R1  whole step compiled"
  says=$(cat table $model/ladder.html | grep -c "of one round, which cannot tell" || true)
  [ "$says" = $((4 - 2 * rounds)) ] || fail "$rounds rounds: $says times that one round cannot tell noise: $(cat table)"
done
"$WS" compare encoder/ladder.json mlp/ladder.json >table
has table "B / A"
has table 'model differs: "encoder" and "mlp"'

# A plan that does not fit is refused before it starts, with the batch that would.
"$WS" ladder --model small.json --text text.txt --seq 32 --steps 0 --rounds 1 --rungs R1,R3 --memory-limit 6MiB --json >ladder 2>progress ||
  fail "a refused control ends the ladder: $(cat progress)"
has ladder '"refused":'
has ladder '"fitting_batch":'

# Where timing alone took more steps than the check asks for, it says so.
"$WS" ladder --model small.json --text text.txt --seq 32 --steps 1 --rounds 1 --rungs R1 >table 2>progress || fail "--steps 1: $(cat progress)"
has table "steps of fp32, batch 16 (timing took more than --steps 1): mean loss"

# A byte budget of one's own: met, without effect, and impossible.
budget() {
  "$WS" ladder --model small.json --text text.txt --seq 32 --steps 0 --rounds 1 --rungs R1,R4 --memory-budget "$1" --json >ladder 2>progress ||
    fail "--memory-budget $1: $(cat progress)"
}
budget 1GiB
has ladder 'the budget does not limit this step'
budget 2600KiB
has ladder 'the budget limits this step'
budget 10KiB
has ladder 'cannot be met: the least possible is'
