#!/usr/bin/env bash
# The commands that scripts depend on: options, JSON keys, files, resuming, Ctrl-C.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME=$work/cache
fail() { echo "$*"; exit 1; }

# field FILE KEY: the value of a key in the last line's JSON object (numbers, words and booleans at the top level).
field() { tail -n 1 "$1" | grep -oE "\"$2\":(\"[^\"]*\"|[^,}]*)" | head -n 1 | cut -d: -f2- | tr -d '"'; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 <= b + 0) }'; }

# bench: every promised key, in both modes.
for mode in loop compiled; do
  "$WS" bench --model tiny --mode $mode --steps 200 --warmup 1 --json >bench.$mode
  for key in median_ms min_ms steps_per_s tokens_per_s compile_ms planned_temp_bytes peak_rss_bytes flops loss_first loss_last isa threads; do
    [ -n "$(field bench.$mode $key)" ] || fail "bench --mode $mode lacks $key: $(cat bench.$mode)"
  done
done
[ "$(field bench.loop loss_first)" = "$(field bench.compiled loss_first)" ] || fail "bench: loop and compiled start from different losses"

# parity: all bits, with clipping and a schedule, on two threads.
"$WS" parity --model tiny --optimizer adamw --clip 0.5 --schedule cosine --steps 20 --threads 2 --json >parity
[ "$(field parity bit_identical)" = true ] || fail "parity: $(cat parity)"
grep -q '"relative_difference":{"1":0' parity || fail "parity lacks relative_difference: $(cat parity)"
"$WS" parity --model gpt --width 32 --blocks 1 --seq 16 --batch 2 --steps 4 --threads 2 --json >parity
[ "$(field parity bit_identical)" = true ] || fail "parity of gpt: $(cat parity)"

for model in mlp encoder gpt; do
  "$WS" parity --model $model --dtype bf16 --width 32 --blocks 1 --seq 16 --batch 2 --steps 4 --clip 1 --threads 2 --json >parity
  [ "$(field parity bit_identical)" = true ] || fail "parity of $model in bf16: $(cat parity)"
done

for model in mlp gpt; do
  "$WS" parity --model $model --optimizer muon --clip 1 --schedule cosine --width 32 --blocks 2 --seq 16 --batch 4 --steps 4 --threads 2 --json >parity
  [ "$(field parity bit_identical)" = true ] || fail "parity of $model by muon: $(cat parity)"
done

for precision in high bf16; do
  "$WS" parity --model gpt --matmul-precision $precision --width 32 --blocks 1 --seq 16 --batch 2 --steps 4 --threads 2 --json >parity 2>said
  [ "$(field parity bit_identical)" = true ] || fail "parity with --matmul-precision $precision: $(cat parity)"
  [ "$(grep -vc 'takes a while' said)" -le 1 ] || fail "--matmul-precision $precision says: $(cat said)"
done

# reference: recorded runs of other systems, both modes.
for case in mlp_sgd mlp_nesterov mlp_classifier encoder_sgd encoder_adam_causal gpt_rope_swiglu gpt_learned_gelu_layer; do
  for mode in loop compiled; do
    "$WS" reference "$WS_SOURCE/tests/reference/$case.json" --mode $mode --json >reference
    below "$(field reference max_relative_loss_difference)" 2e-5 || fail "reference $case $mode: $(cat reference)"
  done
done

# train, resume, generate. 12 steps at once and 6 + 6 end in the same bytes.
printf 'In the beginning was the word, and the word was with all of them. %.0s' $(seq 40) >text.txt
options=(--data text.txt --seq 16 --width 32 --blocks 1 --batch 4 --clip 1)
"$WS" train "${options[@]}" --steps 12 --out whole --json >train 2>progress
[ "$(field train steps)" = 12 ] || fail "train: $(cat train)"
[ "$(wc -l <whole/metrics.jsonl)" -ge 12 ] || fail "metrics.jsonl has $(wc -l <whole/metrics.jsonl) lines"
"$WS" train "${options[@]}" --steps 6 --out parts --json >train 2>progress
"$WS" train "${options[@]}" --steps 12 --out parts --resume --json >train 2>progress
cmp whole/checkpoint/model.safetensors parts/checkpoint/model.safetensors || fail "a resumed run ends elsewhere"
cmp whole/checkpoint/optimizer.safetensors parts/checkpoint/optimizer.safetensors || fail "a resumed run's optimizer ends elsewhere"
"$WS" train "${options[@]}" --dtype bf16 --steps 4 --out narrow --json >train 2>progress
"$WS" train "${options[@]}" --steps 8 --out narrow --resume --json >train 2>progress
[ "$(field train dtype)" = bf16 ] || fail "a resumed run forgets --dtype: $(cat train)"
"$WS" train "${options[@]}" --matmul-precision high --steps 4 --out parted --json >train 2>progress
"$WS" train "${options[@]}" --steps 8 --out parted --resume --json >train 2>progress
[ "$(field train matmul_precision)" = high ] || fail "a resumed run forgets --matmul-precision: $(cat train)"
"$WS" train "${options[@]}" --optimizer muon --steps 8 --out muon --json >train 2>progress
grep -q '"lr":0.02' muon/metrics.jsonl || fail "muon's rate: $(cat muon/metrics.jsonl)"
"$WS" train "${options[@]}" --optimizer muon --steps 4 --out muon_parts --json >train 2>progress
"$WS" train "${options[@]}" --steps 8 --out muon_parts --resume --json >train 2>progress   # the optimizer is remembered
for file in model optimizer; do
  cmp muon/checkpoint/$file.safetensors muon_parts/checkpoint/$file.safetensors || fail "a resumed run by muon ends elsewhere"
done
grep -qa muon.momentum.blocks.0 muon/checkpoint/optimizer.safetensors || fail "muon keeps no momentum of matrices"
"$WS" generate --checkpoint parted --prompt "in the " --tokens 5 >said
"$WS" generate --checkpoint narrow --prompt "in the " --tokens 5 >said
"$WS" generate --checkpoint whole --prompt "in the " --tokens 30 --seed 3 >said
"$WS" generate --checkpoint whole/checkpoint --prompt "in the " --tokens 30 --seed 3 --threads 1 >again
cmp said again || fail "generate depends on threads"
[ "$(head -c 7 said)" = "in the " ] && [ "$(wc -c <said)" -ge 38 ] || fail "generate wrote: $(cat said)"
"$WS" generate --checkpoint whole --prompt "in the " --tokens 30 --seed 3 --json >json
[ "in the $(field json text)" = "$(cat said)" ] || fail "generate --json writes another text: $(cat json said)"

# Symbols are shown as they are made, long before the last.
"$WS" generate --checkpoint whole --prompt "in the " --tokens 10000000 >said 2>notes &
pid=$!
for _ in $(seq 300); do [ "$(wc -c <said)" -ge 20 ] && break; sleep 0.1; done
kill $pid || fail "generate has ended: $(cat notes)"
wait $pid || true
[ "$(wc -c <said)" -ge 20 ] || fail "generate shows nothing before its end"

# A prompt's symbols that the vocabulary lacks are named in one line; what the letters' rule makes a space is not.
"$WS" generate --checkpoint whole --prompt "In thé 9" --tokens 1 >said 2>notes
[ ! -s notes ] || fail "generate warns of what is a space by rule: $(cat notes)"
"$WS" train "${options[@]}" --vocab utf8 --steps 1 --out every --json >train 2>progress
"$WS" generate --checkpoint every --prompt $'In th\xc3\xa9\n' --tokens 1 >said 2>notes
[ "$(wc -l <notes)" = 1 ] && grep -qF $'lacks "\xc3\xa9", "\\n", which' notes || fail "unknown symbols of a prompt: $(cat notes)"

# Ctrl-C: what was done is saved. While a run trains into a folder, no other does.
"$WS" train "${options[@]}" --steps 10000000 --out cut --json >train 2>progress &
pid=$!
for _ in $(seq 100); do [ -s cut/metrics.jsonl ] && break; sleep 0.1; done
for how in "" --overwrite --resume; do
  # shellcheck disable=SC2086
  "$WS" train "${options[@]}" --steps 2 --out cut $how >said 2>notes && fail "two runs train into one folder"
  [ "$(cat notes)" = "wholestep: cut is in use by another run (process $pid): wait until it ends, or give another --out" ] || fail "a second run: $(cat notes)"
done
kill -INT $pid
code=0; wait $pid || code=$?
[ $code = 130 ] || fail "after Ctrl-C train exits with $code"
[ -f cut/checkpoint/model.safetensors ] || fail "Ctrl-C left no checkpoint"
[ "$(find cut -name '*.tmp*' -o -name '.*' | wc -l)" = 0 ] || fail "Ctrl-C left $(find cut -name '*.tmp*' -o -name '.*')"
# Other wishes to end, each with its own exit code; one that is ignored, as under nohup, is none.
for signal in TERM:143 HUP:129; do
  rm -rf ended
  "$WS" train "${options[@]}" --steps 10000000 --out ended --json >train 2>progress &
  pid=$!
  for _ in $(seq 100); do [ -s ended/metrics.jsonl ] && break; sleep 0.1; done
  kill -${signal%:*} $pid
  code=0; wait $pid || code=$?
  [ $code = "${signal#*:}" ] && [ -f ended/checkpoint/model.safetensors ] || fail "after SIG${signal%:*} train exits with $code: $(cat progress)"
done
# What is printed may have no reader, since a terminal or a pipe closed or a disk is full: the run goes on, or is saved.
"$WS" train "${options[@]}" --steps 3 --out unread --json >train 2>/dev/full || fail "train with a full stderr: $(cat train)"
{ code=0; "$WS" train "${options[@]}" --steps 30 --out unread --overwrite 2>&1 || code=$?; echo $code >code; } | true
[ "$(cat code)" = 141 ] && [ -f unread/checkpoint/model.safetensors ] || fail "into a closed pipe train exits with $(cat code)"
"$WS" train "${options[@]}" --steps 30 --save-every 5 --out unread --overwrite >&- 2>&- || fail "train with closed streams"
[ "$(grep -vc '^{.*}$' unread/metrics.jsonl)" = 0 ] || fail "metrics hold $(grep -v '^{.*}$' unread/metrics.jsonl)"
"$WS" train "${options[@]}" --steps 10000000 --out unread --overwrite >/dev/full 2>/dev/full &
pid=$!
for _ in $(seq 100); do [ "$(grep -c lr unread/metrics.jsonl)" -gt 40 ] && break; sleep 0.1; done
kill -HUP $pid
code=0; wait $pid || code=$?
[ $code = 129 ] && "$WS" train --resume --out unread --steps 10000001 --minutes 0.001 --json >train 2>progress || fail "SIGHUP with full streams: $code, $(cat progress)"
(trap '' HUP; exec "$WS" train "${options[@]}" --steps 10000000 --out ended --overwrite --json >train 2>progress) &
pid=$!
for _ in $(seq 100); do [ "$(grep -c lr ended/metrics.jsonl)" -lt 10 ] && break; sleep 0.1; done
kill -HUP $pid
sleep 0.5
kill -TERM $pid || fail "an ignored SIGHUP ends train: $(cat progress)"
code=0; wait $pid || code=$?
[ $code = 143 ] || fail "after an ignored SIGHUP train exits with $code: $(cat progress)"
cp -r cut killed
"$WS" train --resume --out killed --json >train 2>progress &
pid=$!
for _ in $(seq 100); do [ -s killed/.wholestep-lock ] && break; sleep 0.1; done
"$WS" train "${options[@]}" --steps 2 --out killed >said 2>notes && fail "two runs train into one folder"
[ "$(cat notes)" = "wholestep: killed is in use by another run (process $pid): wait until it ends, or give another --out" ] || fail "a second run beside a resumed one: $(cat notes)"
kill -KILL $pid
wait $pid || true
"$WS" train --resume --out killed --steps 10000001 --minutes 0.001 --json >train 2>progress || fail "a killed run's folder stays locked: $(cat progress)"

# Samples: a table, in both losses; 3 epochs at once, and cut within the second, end in the same bytes.
awk 'BEGIN { srand(1); print "a,b,kind"; for (i = 0; i < 300; ++i) { x = rand(); y = rand(); print x "," y "," (x + y > 1) } }' >table.csv
"$WS" train --data table.csv --epochs 2 --optimizer sgd --json >train 2>progress
[ "$(field train model)" = mlp ] && [ "$(field train steps)" = 6 ] || fail "train on a table: $(cat train)"
samples=(--data table.csv --loss cross_entropy --width 16 --batch 40 --lr 0.01)
"$WS" train "${samples[@]}" --epochs 3 --out table --json >train 2>progress
[ "$(field train steps)" = 24 ] || fail "train on a table: $(cat train)"
[ "$(grep -c compil progress)" = 1 ] && grep -qF 'train_step: a batch of 20 instead of 40, such as the last of an epoch: a program of its own is compiled for it, once' progress ||
  fail "the last batch: $(cat progress)"
"$WS" train "${samples[@]}" --steps 11 --out cut_table --json >train 2>progress
"$WS" train --epochs 3 --out cut_table --resume --json >train 2>progress   # options are remembered
cmp table/checkpoint/model.safetensors cut_table/checkpoint/model.safetensors || fail "a run on a table, resumed, ends elsewhere"

# What the shown loss is; samples a second count those that there are.
printf '1,2\n3,5\n' >two.csv
"$WS" train --data two.csv --steps 300 --json >train 2>progress
tail -n 1 progress | grep -qE "^train 300/300 .* loss $(printf %.4f "$(field train mean_loss_last_20)") \\(mean of the last 20 steps\\)$" || fail "the last line: $(cat train progress)"
"$WS" train --data two.csv --steps 7 >said 2>progress
tail -n 1 progress | grep -qF '(mean of the last 7 steps)' || fail "the last line of a short run: $(cat progress)"
"$WS" train "${options[@]}" --steps 300 --minutes 0.0015 --cache 0 --json >train_cut 2>progress   # up within the first step, which compiles
steps=$(field train_cut steps)
[ "$steps" -lt 20 ] && grep -qE "^train $steps/300 .*\((of the last step|mean of the last $steps steps)\)$" progress || fail "the last line of a run cut short: $(cat train_cut progress)"
awk -v rate="$(field train samples_per_s)" -v s="$(field train seconds)" 'BEGIN { exit !(rate * s < 601 && rate * s > 599) }' || fail "samples_per_s: $(cat train)"

# A run that was cut goes on to its own length.
"$WS" train --data table.csv --steps 3 --out unsaid --json >train 2>progress
sed -i 's/"steps": *3/"steps": 7/' unsaid/checkpoint/config.json
"$WS" train --resume --out unsaid --json >train 2>progress
[ "$(field train steps)" = 7 ] || fail "a run resumed without a length: $(cat train progress)"

# A longer run stretches its schedule, and says so; one of its own length says nothing.
"$WS" train --data table.csv --schedule cosine --epochs 2 --out stretched --json >train 2>progress
"$WS" train --epochs 4 --out stretched --resume --json >train 2>progress
grep -qF -- '--schedule cosine spans 12 steps now, not 6: the learning rate goes on at 0.0005, after 6.7e-05' progress || fail "a stretched schedule: $(cat progress)"
sed -i 's/"epochs": 4/"epochs": 5/' stretched/checkpoint/config.json
"$WS" train --out stretched --resume --json >train 2>progress
! grep -q spans progress || fail "a schedule as planned: $(cat progress)"

# Options that do nothing are named; the run goes on.
"$WS" train "${options[@]}" --steps 1 --overlap on --shard-optimizer --save-every 5 --json >train 2>progress
grep -qF -- '--overlap on and --shard-optimizer do nothing with one rank: --ranks starts several' progress &&
  grep -qF -- '--save-every does nothing here: there is no --out to save to' progress || fail "options that do nothing: $(cat progress)"
"$WS" train "${options[@]}" --steps 1 --mode loop --memory-budget 1GiB --json >train 2>progress || fail "--memory-budget in a loop: $(cat progress)"
grep -qF -- '--memory-budget does nothing here: it is of --mode compiled' progress || fail "--memory-budget in a loop: $(cat progress)"
"$WS" bench --model tiny --steps 1 --shard-optimizer --json >bench 2>progress
[ "$(cat progress)" = 'wholestep: --shard-optimizer does nothing with one rank: --ranks starts several' ] || fail "bench: $(cat progress)"

# A model described in a file, as docs/training.md shows; --resume needs no file.
awk 'BEGIN { srand(2); print "x1,x2,height"; for (i = 0; i < 200; ++i) { x = rand(); y = rand(); print x "," y "," 2 * x - y } }' >heights.csv
cp "$WS_SOURCE/examples/residual.json" .
"$WS" train --model residual.json --data heights.csv --target height --epochs 20 --width 64 --out described --json >train 2>progress
grep -qF -- '--width does nothing here: the sizes are those of residual.json' progress || fail "--width with a file: $(cat progress)"
[ "$(field train steps)" = 40 ] && below "$(field train mean_loss_last_20)" "$(field train mean_loss_first_20)" || fail "a model in a file: $(cat train)"
rm residual.json
"$WS" train --resume --epochs 21 --out described --json >train 2>progress
[ "$(field train steps)" = 42 ] || fail "a model in a file, resumed: $(cat train progress)"

# Real images, where they are installed: an epoch of an mlp, some steps of a convolutional net with batch norm and dropout.
if [ -d /usr/share/datasets/fashion-mnist ]; then
  "$WS" train --data fashion-mnist --epochs 1 --json >train 2>progress
  below 0.80 "$(field train validation_accuracy)" || fail "an epoch of fashion-mnist: $(cat train)"
  grep -q 'epoch 1: loss .* accuracy' progress || fail "no line for the epoch: $(cat progress)"
  "$WS" train --data fashion-mnist --model convnet --width 4 --steps 40 --json >train 2>progress
  below 0.5 "$(field train validation_accuracy)" || fail "steps of a convnet: $(cat train)"
fi

# Recomputation: the same bits with less memory; a budget that cannot be met says what could.
gpt=(--model gpt --width 32 --blocks 2 --seq 16 --batch 4)
"$WS" bench "${gpt[@]}" --steps 1 --json >plain
"$WS" bench "${gpt[@]}" --steps 1 --checkpoint --json >less
"$WS" bench "${gpt[@]}" --steps 1 --memory-budget 1GiB --json >enough
below "$(field less planned_temp_bytes)" "$(($(field plain planned_temp_bytes) * 9 / 10))" || fail "--checkpoint saves nothing: $(cat plain less)"
[ "$(field less kernels_run_twice)" -gt 0 ] && [ "$(field enough kernels_run_twice)" = 0 ] || fail "kernels run twice: $(cat less enough)"
[ "$(field less loss_last)" = "$(field plain loss_last)" ] || fail "--checkpoint changes the loss"
"$WS" bench "${gpt[@]}" --steps 1 --memory-budget 1KiB 2>message && fail "a budget of 1 KiB was met"
least=$(sed -n 's/.*least possible is \([0-9]*\) bytes.*/\1/p' message)
"$WS" bench "${gpt[@]}" --steps 1 --memory-budget "$least" --json >tight
[ "$(field tight kernels_run_twice)" -gt 0 ] && below "$(field tight planned_peak_bytes)" "$least" || fail "the least possible budget: $(cat message tight)"
"$WS" parity "${gpt[@]}" --steps 2 --threads 2 --checkpoint --memory-budget "$least" --json >parity
[ "$(field parity bit_identical)" = true ] || fail "parity within a budget: $(cat parity)"
WHOLESTEP_MEMORY_LIMIT=8MiB "$WS" bench --model mlp 2>message && fail "a step larger than the machine was started"
grep -q 'the largest batch that fits' message || fail "no batch is named: $(cat message)"

# bench-trainer, shortened: what it writes, and what it says of the claims.
"$WS" bench-trainer --width 16 --batch 4 --seq 8 --blocks 1 --sessions 2 --steps 4 --parity-steps 10 --out made/step.json --json >trainer 2>progress
for key in device versions protocol sessions ratio_of_medians wilcoxon a12 first_call_s losses_bit_identical verdict not_measured; do
  grep -q "\"$key\"" made/step.json || fail "bench-trainer's file lacks $key"
done
[ "$(grep -c '"parameters_and_state_bit_identical": true' made/step.json)" = 2 ] || fail "bench-trainer: $(cat made/step.json)"
[ "$(grep -c '"relative_difference": 0.0' made/step.json)" = 4 ] || fail "bench-trainer's parity: $(cat made/step.json)"
"$WS" bench-trainer --models mlp --width 16 --batch 4 --blocks 1 --sessions 1 --steps 4 --parity-steps 1 --out made/one.json >trainer 2>progress
grep -q 'one session cannot tell' trainer && grep -q '"noisy": null' made/one.json && ! grep -q '"noisy": null' made/step.json ||
  fail "bench-trainer of one session judges its noise: $(cat trainer)"
grep -q 'not measured' made/step.json || fail "bench-trainer claims a GPU"

# Dumps and a timeline, into folders that are made.
"$WS" bench --model tiny --steps 10 --dump seen/dump --trace seen/time/trace.json --json >bench.seen
[ -n "$(find seen/dump -name '*.program.txt')" ] && grep -q traceEvents seen/time/trace.json || fail "--dump and --trace left $(find seen)"

# A misspelt variable of the environment is named, once, with what it may be meant to be unless that is far-fetched.
for ranks in 1 2; do
  WHOLESTEP_THREAD=1 WHOLESTEP_ZZ=1 WHOLESTEP_CACHE=0 "$WS" bench --model tiny --steps 1 --batch 4 --ranks $ranks --json >bench.seen 2>progress
  [ "$(grep -c 'WHOLESTEP_THREAD (is WHOLESTEP_THREADS meant?), WHOLESTEP_ZZ; wholestep' progress)" = 1 ] && ! grep -q 'CACHE ' progress ||
    fail "misspelt variables: $(cat progress)"
done

# inspect and ladder.
"$WS" inspect --model tiny --show memory --map map.svg >inspect
"$WS" inspect --model tiny --show cost --map made/of/map.html >inspect
grep -q '^<svg' map.svg && grep -q '</html>' made/of/map.html || fail "inspect --map wrote no picture"
"$WS" inspect --model tiny --show predict --profile --json >inspect
for key in prediction classification profile measured_seconds; do grep -q "\"$key\"" inspect || fail "inspect lacks $key: $(cat inspect)"; done
"$WS" inspect --model tiny --show all >inspect
grep -q . inspect || fail "inspect printed nothing"
"$WS" ladder --text text.txt --seq 16 --steps 30 --rounds 1 --out climbed --json >ladder 2>progress
grep -q '"rung":"R1"' ladder && [ "$(field ladder logits_bit_identical)" = true ] && [ "$(field ladder losses_bit_identical)" = true ] ||
  fail "ladder: $(cat ladder)"
[ -f climbed/ladder.json ] && [ -f climbed/checkpoint/config.json ] || fail "ladder --out wrote $(ls climbed)"
"$WS" ladder --text text.txt --seq 16 --steps 0 --rounds 1 --rungs R1 --out climbed --json >ladder 2>progress
grep -qF 'climbed holds a ladder, which this one replaces at its end' progress || fail "a second ladder: $(cat progress)"
