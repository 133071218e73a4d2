#!/usr/bin/env bash
# --ranks: training on two processes as on one, one line of error, a rank that dies, Ctrl-C, and the documents' example.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
bad=0
complain() { echo "$*"; bad=1; }
small=(train --width 16 --blocks 1 --batch 4 --seq 16 --json)

"$WS" "${small[@]}" --steps 20 --out one >one.json 2>err || complain "one process: $(cat err)"
"$WS" "${small[@]}" --steps 20 --out two --ranks 2 >two.json 2>err || complain "two ranks: $(cat err)"
[ "$(wc -l <two.json)" = 1 ] || complain "two ranks print $(wc -l <two.json) lines: $(cat two.json)"
grep -q '"ranks":2' two.json || complain "no ranks in $(cat two.json)"
loss() { sed -E 's/.*"loss_last":([-+.e0-9]+).*/\1/' "$1"; }
awk -v a="$(loss one.json)" -v b="$(loss two.json)" 'BEGIN { d = a - b; exit !(a > 0 && (d < 0 ? -d : d) <= 1e-5 * a) }' ||
  complain "losses differ: $(cat one.json two.json)"
# Cut in two parts, with other numbers of ranks.
"$WS" "${small[@]}" --steps 10 --out cut --ranks 2 >out 2>err && "$WS" "${small[@]}" --steps 20 --out cut --resume --ranks 2 >out 2>err ||
  complain "resumed: $(cat err)"
for i in 1 2 3 4; do echo "$i,$((2 * i))"; done >numbers.csv
"$WS" train --data numbers.csv --batch 2 --width 8 --epochs 2 --ranks 2 >out 2>err && [ "$(grep -c 'epoch 1: loss' err)" = 1 ] ||
  complain "epochs on two ranks: $(cat err)"
cmp two/checkpoint/model.safetensors cut/checkpoint/model.safetensors || complain "a resumed run on two ranks ends with other bits"

# Buckets and a sharded optimizer: the same checkpoint bit for bit, gone on from with another number of ranks.
"$WS" "${small[@]}" --steps 10 --out shared --ranks 2 --shard-optimizer --overlap on --bucket-mb 0.002 >out 2>err &&
  cp -r shared shared4 && cp -r shared shared1 &&
  "$WS" "${small[@]}" --steps 20 --out shared --resume --ranks 2 >out 2>err || complain "sharded: $(cat err)"
for file in model optimizer; do
  cmp two/checkpoint/$file.safetensors shared/checkpoint/$file.safetensors || complain "a sharded run's $file has other bits"
done
"$WS" "${small[@]}" --steps 20 --out shared4 --resume --ranks 4 --shard-optimizer >four.json 2>err || complain "four: $(cat err)"
"$WS" "${small[@]}" --steps 20 --out shared1 --resume >one.json 2>err || complain "one after two: $(cat err)"
awk -v a="$(loss one.json)" -v b="$(loss four.json)" 'BEGIN { d = a - b; exit !(a > 0 && (d < 0 ? -d : d) <= 1e-4 * a) }' ||
  complain "losses differ: $(cat one.json four.json)"

"$WS" bench --model mlp --width 32 --blocks 1 --batch 8 --steps 3 --ranks 2 --json >out 2>err && grep -q '"beta_bytes_per_s"' out ||
  complain "bench --ranks 2: $(cat out err)"
"$WS" bench --model mlp --width 32 --blocks 1 --batch 8 --steps 3 --ranks 2 --overlap both --json >out 2>err &&
  grep -q '"overlap_speedup":[0-9]' out && grep -q '"comm_exposed_ms":[0-9]' out || complain "bench --overlap both: $(cat out err)"

# A timeline a rank, each of its own steps.
"$WS" "${small[@]}" --steps 2 --ranks 2 --trace seen/time.json >out 2>err || complain "a trace of two ranks: $(cat err)"
[ "$(ls seen)" = $'time.json\ntime.rank1.json' ] || complain "a trace of two ranks left $(ls seen)"
for rank in 0:time.json 1:time.rank1.json; do
  grep -q "wholestep rank ${rank%:*}\"" "seen/${rank#*:}" && grep -q '"cat":"run"\|"cat":"step"' "seen/${rank#*:}" && tail -n 1 "seen/${rank#*:}" | grep -q '^\],"displayTimeUnit":"ns"}$' ||
    complain "${rank#*:}: $(head -c 300 "seen/${rank#*:}")"
done

# An error: one line, its exit code, nothing on stdout.
"$WS" train --data missing.txt --ranks 2 --out no >out 2>err
code=$?
[ $code = 1 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q 'cannot read missing.txt' err ||
  complain "missing text: exit $code, $(cat out err)"

# Far more ranks than the machine can hold are not started.
many=$((16 * $(nproc --all) + 1))
timeout 20 "$WS" "${small[@]}" --steps 1 --ranks $many --out no >out 2>err
code=$?
[ $code != 0 ] && [ ! -e no ] && [ "$(wc -l <err)" = 1 ] && grep -q "ranks" err || complain "$many ranks: exit $code, $(cat err)"

# A rank that dies ends the job, with gradients under way; the checkpoint of before is whole.
"$WS" "${small[@]}" --steps 1000000 --save-every 5 --out killed --ranks 2 --overlap on --shard-optimizer >out 2>err &
job=$!
for _ in $(seq 300); do [ -e killed/checkpoint/model.safetensors ] && break; sleep 0.1; done
mpirun_pid=$(pgrep -P $job | head -n 1)
kill -KILL "$(pgrep -P "$mpirun_pid" | tail -n 1)"
wait $job
code=$?
[ $code != 0 ] && [ "$(grep -c . err)" = 1 ] && grep -q 'ended by signal 9' err || complain "killed rank: exit $code, $(cat err)"
"$WS" generate --checkpoint killed --tokens 3 >out 2>err || complain "the checkpoint of a killed job: $(cat err)"

# Ctrl-C and other wishes to end: all ranks end at one step, saved.
for signal in INT:130 TERM:143 HUP:129; do
  rm -rf stopped
  "$WS" "${small[@]}" --steps 1000000 --save-every 5 --out stopped --ranks 2 >out 2>err &
  job=$!
  for _ in $(seq 300); do [ -e stopped/checkpoint/model.safetensors ] && break; sleep 0.1; done
  kill -${signal%:*} $job
  wait $job
  code=$?
  [ $code = "${signal#*:}" ] && grep -q 'saved, --resume continues' err || complain "SIG${signal%:*}: exit $code, $(cat err)"
done

# Ctrl-C while the ladder measures on ranks: what was measured before is saved.
printf 'In the beginning was the word, and the word was with all of them. %.0s' $(seq 40) >text.txt
"$WS" ladder --text text.txt --seq 16 --steps 0 --rounds 1 --rungs R1,R5 --out climbed >out 2>err &
job=$!
for _ in $(seq 600); do grep -q 'R5 R1 on 2 ranks, weak scaling: predicted' err && break; sleep 0.1; done
kill -INT $job
wait $job
code=$?
[ $code = 130 ] && grep -q '"rung": "R1"' climbed/ladder.json && grep -q 'what was done is saved' err || complain "a ladder stopped at R5: exit $code, $(cat err)"

# Asked to end before the ranks are ready (or, on a busy machine, before anything is): all end, and no folder is left behind.
for delay in 0.2 0.5 0.8; do
  TMPDIR=$work/tmp && mkdir -p "$TMPDIR" && export TMPDIR
  timeout 60 "$WS" "${small[@]}" --steps 1000000 --out early --ranks 2 >out 2>err &
  job=$!
  sleep $delay
  pkill -TERM -P $job
  wait $job
  code=$?
  [ $code = 143 ] || complain "TERM after $delay s: exit $code, $(cat err)"
  [ -z "$(find "$TMPDIR" -maxdepth 1 -name 'wholestep-job-*')" ] || complain "TERM after $delay s leaves $(ls "$TMPDIR")"
  rm -rf early
done
unset TMPDIR

"$WS" scaling --params 19e6 --step-ms 120 --tokens 8192 --link 10GB/s,25GB/s --latency 5us >out 2>err && grep -q '^25GB/s *1024' out ||
  complain "scaling: $(cat out err)"
exit $bad
