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
cmp two/checkpoint/model.safetensors cut/checkpoint/model.safetensors || complain "a resumed run on two ranks ends with other bits"

"$WS" bench --model mlp --width 32 --blocks 1 --batch 8 --steps 3 --ranks 2 --json >out 2>err && grep -q '"beta_bytes_per_s"' out ||
  complain "bench --ranks 2: $(cat out err)"

# An error: one line, its exit code, nothing on stdout.
"$WS" train --data missing.txt --ranks 2 --out no >out 2>err
code=$?
[ $code = 1 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q 'cannot read missing.txt' err ||
  complain "missing text: exit $code, $(cat out err)"

# A rank that dies ends the job; the checkpoint of before is whole.
"$WS" "${small[@]}" --steps 1000000 --save-every 5 --out killed --ranks 2 >out 2>err &
job=$!
for _ in $(seq 300); do [ -e killed/checkpoint/model.safetensors ] && break; sleep 0.1; done
mpirun_pid=$(pgrep -P $job | head -n 1)
kill -KILL "$(pgrep -P "$mpirun_pid" | tail -n 1)"
wait $job
code=$?
[ $code != 0 ] && [ "$(grep -c . err)" = 1 ] && grep -q 'ended by signal 9' err || complain "killed rank: exit $code, $(cat err)"
"$WS" generate --checkpoint killed --tokens 3 >out 2>err || complain "the checkpoint of a killed job: $(cat err)"

# Ctrl-C: all ranks end at one step, saved.
"$WS" "${small[@]}" --steps 1000000 --save-every 5 --out stopped --ranks 2 >out 2>err &
job=$!
for _ in $(seq 300); do [ -e stopped/checkpoint/model.safetensors ] && break; sleep 0.1; done
kill -INT $job
wait $job
code=$?
[ $code = 130 ] && grep -q 'saved, --resume continues' err || complain "Ctrl-C: exit $code, $(cat err)"

"$WS" scaling --params 19e6 --step-ms 120 --tokens 8192 --link 10GB/s,25GB/s --latency 5us >out 2>err && grep -q '^25GB/s *1024' out ||
  complain "scaling: $(cat out err)"
exit $bad
