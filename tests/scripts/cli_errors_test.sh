#!/usr/bin/env bash
# Bad input to the command line: one clear line on stderr, the right exit code, nothing half written.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME=$work/cache
bad=0

# refuses CODE TEXT ARGS...: exits with CODE, stdout empty, stderr one line that holds TEXT. A busy machine may also say that it is slow.
refuses() {
  local code=$1 text=$2 got
  shift 2
  timeout 120 "$WS" "$@" >out 2>said
  got=$?
  grep -v ': this takes a while$' said >err
  if [ "$got" != "$code" ] || [ -s out ] || [ "$(wc -l <err)" != 1 ] || ! grep -qF -- "$text" err; then
    printf 'wholestep %s\n  expected exit %s and one line with: %s\n  got exit %s and: %s\n' "$*" "$code" "$text" "$got" "$(cat out err)"
    bad=1
  fi
}

printf 'abc' >short.txt
printf 'ab\0cd\377\376' >binary.bin
printf 'graph' >broken.ir
printf '{"type": "gpt", "num_hiddens": 30}' >heads.json
printf '{"type": "gpt", "num_hiddens": }' >broken.json
printf '{"type": "gpt", "num_hiddens": 40}' >pairs.json
printf '{"type": "quantum"}' >unknown.json
printf '12345678' >junk.safetensors
printf '1,0.5\n3,4\n' >fractions.csv

refuses 2 "bench does not take: --speed (is --seed meant?) 3 (wholestep bench --help and wholestep --help list what there is)" bench --model mlp --speed 3
refuses 2 "--model is required (wholestep bench --help and wholestep --help list what there is)" bench
refuses 2 "frobnicate" frobnicate
refuses 1 "unknown model 'resnet'" bench --model resnet
refuses 1 "--mode must be loop or compiled" bench --model tiny --mode fast
refuses 1 "--batch must be at least 1, not -4" bench --model tiny --batch -4
refuses 1 "--threads must be a whole number from 0 to 1024" bench --model tiny --threads many
for width in 30 40; do
  for command in "bench --model gpt" "inspect --model gpt" "train --data short.txt --out run"; do
    # shellcheck disable=SC2086
    refuses 1 "--width $width: a gpt has 8 heads, and RoPE pairs the features of each, so the width must be a multiple of 16" $command --width $width --batch 1 --seq 2
  done
done
refuses 1 "--width 36: an encoder has 8 heads, so the width must be a multiple of 8" bench --model encoder --width 36 --batch 1 --seq 8
refuses 1 "unknown optimizer 'sdg'" parity --model tiny --optimizer sdg
refuses 1 "--steps must be at least 1, not 0" parity --model tiny --steps 0
refuses 1 "learning rate 0 must be above 0" parity --model tiny --optimizer muon --lr 0 --steps 2
refuses 1 "use AdamW, or leave shard_optimizer out" train --data short.txt --seq 2 --optimizer muon --shard-optimizer
refuses 1 "clip_norm" parity --model tiny --clip 0 --steps 2
refuses 1 "unknown schedule 'linear'" parity --model tiny --schedule linear --steps 2
refuses 1 "short.txt is too short: it has 3 symbols, a window of block 8 needs 9" train --data short.txt --seq 8 --out run
refuses 1 "binary.bin is not a text in UTF-8: byte 2 is 0x00" train --data binary.bin --seq 4 --out run
refuses 1 "cannot read missing.txt" train --data missing.txt --out run
refuses 1 "cannot read missing.json" train --data short.txt --seq 2 --model missing.json --out run
refuses 1 "broken.json: line 1, column 32" train --data short.txt --seq 2 --model broken.json --out run
refuses 1 "unknown model \"quantum\"" train --data short.txt --seq 2 --model unknown.json --out run
refuses 1 "not divisible by 8 heads" train --data short.txt --seq 2 --model heads.json --out run
refuses 1 "width 40 leaves each of 8 heads 5 features, which RoPE cannot pair" train --data short.txt --seq 2 --model pairs.json --out run
refuses 1 "junk.safetensors" train --data junk.safetensors --out run
refuses 1 "--batch must be at least 1, not -1" train --data short.txt --seq 2 --batch -1 --out run
refuses 1 "holds no checkpoint" train --data short.txt --seq 2 --resume --out run
refuses 1 "holds no checkpoint" generate --checkpoint nowhere
refuses 1 "cannot read missing.ir" eval missing.ir
refuses 1 "broken.ir:1:" eval broken.ir
refuses 1 "cannot read missing.json" reference missing.json
cp "$WS_SOURCE"/tests/reference/mlp_sgd.{json,safetensors} .
tr -d ' \n' <mlp_sgd.json | sed 's/\["0.Dense.1",\[64\]\]/["0.Dense.1",[65]]/' >mlp_other.json
cp mlp_sgd.safetensors mlp_other.safetensors
refuses 1 '"params" lists "0.Dense.1" as [65], the tensor file has [64]' reference mlp_other.json
refuses 1 "unknown rung 'R9'" ladder --rungs R0,R9
refuses 1 "--batch must be at least 1, not 0" bench --model tiny --batch 0
refuses 1 "--width must be at least 1, not 0" bench --model tiny --width 0
refuses 1 "--blocks must be at least 1, not -1" bench --model mlp --blocks -1
refuses 1 "--steps must be at least 1, not 0" bench --model tiny --steps 0
for command in "bench --model tiny" "parity --model tiny" bench-trainer ladder; do
  # shellcheck disable=SC2086
  refuses 1 "--steps must be at most 100000000, not 1099511627776" $command --steps 1099511627776
done
refuses 1 "--warmup must be at most 100000000, not 1099511627776" bench --model tiny --warmup 1099511627776
refuses 1 "--tokens must be at most 10000000, not 99999999999" generate --checkpoint nowhere --tokens 99999999999
refuses 1 "--tokens must be at least 1, not 0" generate --checkpoint nowhere --tokens 0
refuses 1 "--top-k must be at least 0, not -1" generate --checkpoint nowhere --top-k -1
refuses 1 "--prompt is not a text in UTF-8: byte 1 is 0xff" generate --checkpoint nowhere --prompt $'a\xff'
refuses 2 "bench does not take: --widht (is --width meant?) 3" bench --model tiny --widht 3
refuses 2 "bench does not take: --thread=1 (is --threads meant?)" bench --model tiny --thread=1
refuses 2 "bench does not take: --colour 1 (wholestep" bench --model tiny --colour 1
refuses 2 "train does not take: -data (is --data meant?) short.txt" train -data short.txt
refuses 2 "wholestep does not take: trian (is train meant?)" trian
refuses 2 "wholestep does not take: frobnicate (wholestep --help lists what there is)" frobnicate
refuses 2 "inspect does not take: --steps 0 (wholestep" inspect --model tiny --steps 0
refuses 1 "--isa (WHOLESTEP_ISA) must be one of those that this machine has, avx2" roofs --isa zzz
refuses 1 "--dump (WHOLESTEP_DUMP): cannot write short.txt: Not a directory" bench --model tiny --dump short.txt
refuses 1 "--dump (WHOLESTEP_DUMP): cannot write /proc/nowhere: No such file or directory" bench --model tiny --dump /proc/nowhere
refuses 1 "--trace (WHOLESTEP_TRACE): cannot write short.txt: Not a directory" bench --model tiny --trace short.txt/trace.json
refuses 1 "--trace (WHOLESTEP_TRACE): cannot write .: Is a directory" bench --model tiny --trace .
refuses 1 "--kernel must be at least 0, not -1" inspect --model tiny --show code --kernel -1
refuses 1 "the step has" inspect --model tiny --show code --kernel 1000
for folder in short.txt short.txt/cache; do
  refuses 1 "--cache-dir (WHOLESTEP_CACHE_DIR): $folder is no folder and cannot become one" bench --model tiny --cache-dir $folder
done
refuses 1 "cannot read missing.ir" eval missing.ir --dump run/dump --trace run/trace.json
refuses 1 "--batch must be at most 100000000, not 99999999999999999999" bench --model tiny --batch 99999999999999999999
refuses 1 "--blocks 10000 of --width 1000000 on 256 rows need more than" bench --model mlp --width 1000000 --blocks 10000
refuses 1 "--seed must be a whole number from 0 to 2^64 - 1, not '-1'" bench --model tiny --seed -1
refuses 1 "--steps must be at least 1, not 0" train --data short.txt --steps 0
refuses 1 "--epochs must be a number above 0" train --data short.txt --epochs 0
for value in nan -inf 1e999 ''; do
  for option in --lr --weight-decay --clip --epochs --minutes; do
    refuses 1 "$option must be a finite number, not '$value'" train --data short.txt --out run $option "$value"
  done
  for option in --lr --clip --decay; do refuses 1 "$option must be a finite number, not '$value'" parity --model tiny $option "$value"; done
  refuses 1 "--temperature must be a finite number, not '$value'" generate --checkpoint nowhere --temperature "$value"
  refuses 1 "--params must be a finite number, not '$value'" scaling --params "$value" --step-ms 1 --tokens 1
done
refuses 1 "--params must be from 1 to 1e+15, not 1e+300" scaling --params 1e300 --step-ms 1 --tokens 1
refuses 1 "must be from 1e-06 to 1e+09, not 1e+300" scaling --params 1e6 --step-ms 1e300 --tokens 1
refuses 1 "--bucket-mb must be from 0.001 to 1e+06, not 1e-300" scaling --params 1e6 --step-ms 1 --tokens 1 --bucket-mb 1e-300
refuses 1 "--link, in bytes a second, must be from 1 to" scaling --params 1e6 --step-ms 1 --tokens 1 --link 1e-300GB/s
refuses 1 "--minutes must be a number above 0" train --data short.txt --minutes 0
refuses 1 "--eval-every must be at least 0, not -1" train --data short.txt --eval-every -1
refuses 1 "--blocks must be at most 10000, not 1000000000" train --data short.txt --blocks 1000000000
refuses 1 "--threads must be a whole number from 0 to 1024" train --threads -2
refuses 1 "there is no pass or rule 'zork'; known ones are" bench --model tiny --disable zork
refuses 1 "must be fusion, not 'zork'" bench --model tiny --explain zork
refuses 1 "--models names mlp, encoder or both, not 'gpt'" bench-trainer --models mlp,gpt
refuses 1 "--preset must be quick or book" ladder --preset slow
printf '1,2\n3,x\n' >broken.csv
printf '1,2\n3,4\n' >numbers.csv
refuses 1 "broken.csv: line 2, column 2: 'x' is not a finite number" train --data broken.csv --out run
printf '1\t2\n3\tx\n' >broken.TSV
refuses 1 "broken.TSV: line 2, column 2: 'x' is not a finite number" train --data broken.TSV --out run
printf '1,2\n3,a\0\033[31mb\n' >control.Csv
refuses 1 "control.Csv: line 2, column 2: 'a\\x00\\x1b[31mb' is not a finite number" train --data control.Csv --out run
mkdir uneven
printf '\0\0\010\003\0\0\0\002\0\0\0\001\0\0\0\001ab' | tee uneven/train-images-idx3-ubyte >uneven/t10k-images-idx3-ubyte
printf '\0\0\010\001\0\0\0\003\0\001\0' | tee uneven/train-labels-idx1-ubyte >uneven/t10k-labels-idx1-ubyte
refuses 1 "uneven/train-images-idx3-ubyte holds 2 images, uneven/train-labels-idx1-ubyte 3 labels" train --data uneven --out run
mkdir sizes no_images
printf '\0\0\010\003\0\0\0\002\0\0\0\001\0\0\0\001ab' >sizes/train-images-idx3-ubyte
printf '\0\0\010\003\0\0\0\002\0\0\0\001\0\0\0\002abcd' >sizes/t10k-images-idx3-ubyte
printf '\0\0\010\001\0\0\0\002\0\001' | tee sizes/train-labels-idx1-ubyte >sizes/t10k-labels-idx1-ubyte
refuses 1 "sizes/train-images-idx3-ubyte holds images of 1 x 1, sizes/t10k-images-idx3-ubyte of 1 x 2; they must be of one size" train --data sizes --out run
cp sizes/train-* no_images
printf '\0\0\010\003\0\0\0\0\0\0\0\001\0\0\0\001' >no_images/t10k-images-idx3-ubyte
printf '\0\0\010\001\0\0\0\0' >no_images/t10k-labels-idx1-ubyte
refuses 1 "no_images/t10k-images-idx3-ubyte holds no images" train --data no_images --out run
refuses 1 "no column named 'height'" train --data numbers.csv --target height --out run
refuses 1 "the loss cross_entropy needs labels 0, 1, .. in y" train --data fractions.csv --loss cross_entropy --out run
refuses 1 "are no images [height, width, channels]" train --data numbers.csv --model convnet --out run
refuses 1 "gpt learns texts" train --data numbers.csv --model gpt --out run
refuses 1 "mlp learns samples" train --data short.txt --seq 2 --model mlp --out run
refuses 1 "cannot read missing.npz" train --data missing.npz --out run
refuses 1 "--loss must be mse or cross_entropy, not 'hinge'" train --data numbers.csv --loss hinge --out run
refuses 1 "--seq is of texts; --data numbers.csv holds samples: leave it out" train --data numbers.csv --seq 8 --out run
refuses 1 "--vocab is of texts; --data numbers.csv holds samples: leave it out" train --data numbers.csv --vocab utf8 --out run
refuses 1 "--target names a column of a .csv or .tsv; --data short.txt has none: leave it out" train --data short.txt --seq 2 --target a --out run
printf 'a,b,a\n1,2,3\n' >twice.csv
mkdir empty
refuses 1 "twice.csv: line 1 names two columns 'a'" train --data twice.csv --out run
refuses 1 "empty lacks train-images-idx3-ubyte: a folder of IDX files holds train-images-idx3-ubyte, train-labels" train --data empty --out run
printf '1e30,1e30\n2e30,-1e30\n' >huge.csv
advice="nothing was updated; scale the data to about -1 to 1, or look where it begins by --nan-check 1"
refuses 1 "$advice" train --data huge.csv --loss mse --out run/deep
grep -q "training step 1: the loss is " err || { echo "huge numbers: $(cat err)"; bad=1; }
printf '1e38,3e38\n-3e38,3e38\n' >largest.csv
refuses 1 "training step 1: the loss is nan; $advice" train --data largest.csv --out run/deep
# A validation set unlike the samples to learn from, a sample that is no number, and a batch of one that batch norm cannot take.
# tensors FILE HEADER: a safetensors file with the data of stdin.
tensors() {
  printf "\\x$(printf %02x ${#2})\\0\\0\\0\\0\\0\\0\\0%s" "$2" >"$1"
  cat >>"$1"
}
samples='"X":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"y":{"dtype":"F32","shape":[2],"data_offsets":[16,24]}'
others='"X_val":{"dtype":"F32","shape":[1,1],"data_offsets":[24,28]},"y_val":{"dtype":"F32","shape":[1],"data_offsets":[28,32]}'
head -c 32 /dev/zero >zeros
tensors unlike.safetensors "{$samples,$others}" <zeros
refuses 1 "unlike.safetensors: X_val [1, 1] must be like X [2, 2] but for the number of samples" train --data unlike.safetensors --out run
{ head -c 12 zeros; printf '\0\0\xc0\x7f'; head -c 8 zeros; } >no_number
tensors no_number.safetensors "{$samples}" <no_number
refuses 1 "no_number.safetensors: X holds nan in sample 1" train --data no_number.safetensors --out run
unsigned='"X":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"y":{"dtype":"U32","shape":[2],"data_offsets":[16,24]}'
{ head -c 16 zeros; printf '\1\0\0\0\0\0\0\x80'; } | tensors unsigned.safetensors "{$unsigned}"
refuses 1 "unsigned.safetensors: y holds 2147483648, which does not fit 32 bits with a sign" train --data unsigned.safetensors --out run
printf '1,2\n3,4\n5,6\n' >longer.csv
printf '{"type": "sequential", "layers": [{"type": "dense", "n_in": 1, "n_out": 2}, {"type": "batch_norm", "n": 2}]}' >norm.json
refuses 1 "--batch 2: the last batch of an epoch has 1 of the 3 samples" train --data longer.csv --batch 2 --model norm.json --out run
refuses 1 "the file must end in .svg or .html" inspect --model tiny --map run/map.png
refuses 1 "cannot write numbers.csv: Not a directory" inspect --model tiny --map numbers.csv/map.svg
refuses 1 "cannot write numbers.csv: Not a directory" bench-trainer --out numbers.csv/step.json
refuses 1 "cannot read missing.ir" eval missing.ir --out run/y.safetensors
# A link to nowhere, given as a folder, is named and stays.
ln -s nowhere link
for command in "train --data numbers.csv --steps 1 --out link" "ladder --out link" "inspect --model tiny --map link/map.svg" \
  "bench --model tiny --trace link/trace.json" "bench --model tiny --dump link"; do
  # shellcheck disable=SC2086
  refuses 1 "is a link to nowhere; make what it points to, or give another name" $command
  [ -L link ] || { echo "$command removed a link to nowhere"; ln -s nowhere link; bad=1; }
done
# A pipe is no file, whether it has a writer or not; a file by way of stdin is.
mkfifo pipe.txt pipe.csv
for data in pipe.txt pipe.csv; do refuses 1 "cannot read $data: it is a pipe, not a file; write what comes from it into one" train --data $data --steps 1; done
refuses 1 "cannot read /dev/stdin: it is a pipe" train --data /dev/stdin --seq 2 --steps 1 < <(cat short.txt)
"$WS" train --data /dev/stdin --seq 2 --batch 1 --width 16 --blocks 1 --steps 1 <short.txt >out 2>err || { echo "a text by stdin: $(cat err)"; bad=1; }
refuses 1 "cannot read uneven: it is a folder, not a file" compare uneven uneven
mkdir pinned && ln -s nowhere pinned/checkpoint
for command in "train --data numbers.csv --steps 1" "train --steps 1 --resume" "train --data numbers.csv --steps 1 --overwrite" ladder; do
  # shellcheck disable=SC2086
  refuses 1 "cannot write pinned/checkpoint: it is a link to nowhere; remove it, or give another --out" $command --out pinned
done
[ -L pinned/checkpoint ] && [ "$(ls -A pinned)" = checkpoint ] || { echo "a link named checkpoint: $(ls -A pinned)"; bad=1; }
long=$(printf 'x%.0s' $(seq 300))
for option in --data --out --model --target; do refuses 1 "$option is empty: give a value, or leave it out" train --steps 1 $option ''; done
refuses 1 "File name too long" train --data numbers.csv --steps 1 --out run/$long
refuses 1 "holds no checkpoint" train --resume --out $long
refuses 1 "holds no checkpoint" generate --checkpoint $long
[ ! -e run ] || { echo "a refused command left $(find run)"; bad=1; }

"$WS" train --data numbers.csv --steps 2 --batch 2 --width 8 --out done_run >out 2>err || { echo "train on numbers.csv: $(cat err)"; bad=1; }
refuses 1 "done_run/checkpoint holds no text model" generate --checkpoint done_run
cp -r done_run same_run
refuses 1 "done_run holds a run: continue it by --resume, give another --out, or replace it by --overwrite" train --data numbers.csv --out done_run
refuses 1 "give --resume or --overwrite, not both" train --resume --overwrite --out done_run
refuses 1 "--overwrite needs --out" train --data numbers.csv --overwrite
refuses 1 "done_run holds a run of train: give another --out" ladder --out done_run
diff -r done_run same_run || { echo "a refused run was touched"; bad=1; }
refuses 1 "training step 1: " train --data huge.csv --loss mse --out same_run --overwrite
diff -r done_run same_run || { echo "a run was replaced by one without a step"; bad=1; }
"$WS" train --data numbers.csv --steps 1 --batch 2 --width 16 --out same_run --overwrite >out 2>err && [ "$(grep -c '"lr"' same_run/metrics.jsonl)" = 1 ] ||
  { echo "train --overwrite: $(cat err)"; bad=1; }
# A run that saved nothing blocks no other.
rm -r same_run/checkpoint
refuses 1 "same_run holds no checkpoint: its run ended before it saved anything; leave --resume out" train --resume --out same_run
"$WS" train --data numbers.csv --steps 2 --batch 2 --width 8 --out same_run >out 2>err && grep -q "metrics.jsonl is of a run that saved nothing" err &&
  [ "$(grep -c '"lr"' same_run/metrics.jsonl)" = 2 ] && [ -e same_run/checkpoint/config.json ] || { echo "after a run that saved nothing: $(cat err)"; bad=1; }
# A checkpoint is no folder of a run: the run that it is of would replace what was trained there.
for out in done_run/checkpoint done_run/checkpoint/ ./done_run/checkpoint; do
  refuses 1 "$out is itself the checkpoint of the run in done_run, which replaces it whole: give the folder of a run by --out" train --steps 4 --resume --out $out
done
refuses 1 "is within the checkpoint of the run in $PWD/done_run" train --data numbers.csv --steps 1 --out "$PWD/done_run/checkpoint/new"
refuses 1 "is itself the checkpoint of the run in done_run" ladder --out done_run/checkpoint
cp -r done_run/checkpoint copied
refuses 1 "copied is itself a checkpoint: give another --out" train --steps 4 --resume --out copied
# Whose a checkpoint beside a ladder.json is, it says itself.
cp -r done_run climbed && echo '{}' >climbed/ladder.json
refuses 1 "climbed holds a run of train: give another --out" ladder --out climbed
echo '{"model": {}}' >climbed/checkpoint/config.json
echo '{"step": 1, "seed": 0}' >climbed/checkpoint/state.json
refuses 1 "climbed holds a ladder: give another --out, or replace its checkpoint by --overwrite" train --data numbers.csv --out climbed
refuses 1 "climbed holds a ladder, which --resume cannot continue: give another --out" train --resume --out climbed
refuses 1 "--batch 4 contradicts the run in done_run, which has 2" train --batch 4 --steps 4 --resume --out done_run
refuses 1 "--width 16 contradicts the run in done_run, which has 8" train --width 16 --steps 4 --resume --out done_run
refuses 1 "--seed 3 contradicts the run in done_run" train --seed 3 --steps 4 --resume --out done_run
refuses 1 "--dtype \"bf16\" contradicts the run in done_run" train --dtype bf16 --steps 4 --resume --out done_run
refuses 1 "matmul precision 'tf32': known ones are highest, high and bf16" bench --model tiny --matmul-precision tf32
refuses 1 "--dtype must be fp32 or bf16" bench --model tiny --dtype fp16
refuses 1 "longer.csv has 3 samples, the run in done_run has 2" train --data longer.csv --steps 4 --resume --out done_run
refuses 1 "the checkpoint is at step 2 already, and the run ends at 2; say how far it goes on by --steps or --epochs" train --steps 2 --resume --out done_run

# A step whose loss is finite, though not what its update leaves; steps are counted from the start of the run, not of the process.
"$WS" train --data numbers.csv --lr 1e39 --steps 1 --out lost_run >out 2>err && { echo "parameters that are not finite were saved"; bad=1; }
grep -q "the update of step 1 left .* and is not saved" err && [ ! -e lost_run/checkpoint ] || { echo "an update to infinity: $(cat err)"; bad=1; }
"$WS" train --data numbers.csv --lr 1e30 --optimizer sgd --width 8 --steps 1 --out far_run >out 2>err || { echo "a large step: $(cat err)"; bad=1; }
refuses 1 "training step 2: the loss is" train --resume --steps 3 --out far_run
grep -q "; lower --lr, limit the gradients by --clip, or look where it begins by --nan-check 1" err || { echo "a loss that a large step left: $(cat err)"; bad=1; }
# Output that cannot be written.
"$WS" --help >/dev/full 2>err
[ $? = 1 ] && grep -q "cannot write the output: No space left on device" err || { echo "a full device: $(cat err)"; bad=1; }

"$WS" bench --model tiny --steps 1 --trace /dev/full >out 2>err
[ $? = 1 ] && [ "$(wc -l <err)" = 1 ] && grep -q "cannot write the trace to /dev/full" err || { echo "a trace to a full device: $(cat err)"; bad=1; }

# What layers refuse names the file that describes them.
printf '{"type": "sequential", "layers": [{"type": "dense", "n_in": 3, "n_out": 1}]}' >wide.json
printf '{"type": "mlp", "sizes": [1, 0, 1]}' >none.json
for mode in loop compiled; do
  refuses 1 "wide.json: dense layer '0': input [2, 1] has 1 features in its last dim, but the layer was built for 3" train --data numbers.csv --batch 2 --model wide.json --mode $mode
done
refuses 1 "has 1 of the 3 samples: wide.json: dense layer '0': input [1, 1] has 1 features" train --data longer.csv --batch 2 --model wide.json
refuses 1 "none.json: dense layer 'layers.0': its output size is 0" train --data numbers.csv --model none.json

# A limit of memory says whose it is; memory that the system denies, what it was for.
refuses 1 "--memory-limit (WHOLESTEP_MEMORY_LIMIT) allows 8.00 MiB" bench --model mlp --memory-limit 8MiB
refuses 1 "the weights of --blocks 4 of --width 512 alone need more than 4.00 MiB, --memory-limit (WHOLESTEP_MEMORY_LIMIT) allows 1.00 MiB" bench --model mlp --memory-limit 1MiB
refuses 1 "the weights of --blocks 3 of --width 10000 alone need more than 763 MiB" train --data numbers.csv --width 10000 --blocks 3 --memory-limit 100MiB
small_gpt=(bench --model gpt --width 16 --blocks 1 --threads 1 --steps 1)
(
  ulimit -v 1000000
  "$WS" --version >out 2>err || exit 0  # sanitizers need more for themselves
  bad=0
  refuses 1 "in blocks.0" "${small_gpt[@]}" --batch 4096 --mode loop
  grep -q ": out of memory: a tensor f32\[4096, 128, [0-9]*\] of [0-9.]* MiB could not be had" err || { cat err; bad=1; }
  refuses 1 "GiB of a step's temporaries could not be had" "${small_gpt[@]}" --batch 16384
  refuses 1 "out of memory: use a smaller batch, model or data set" bench --model mlp --width 16 --batch 40000000 --threads 1
  exit $bad
) || bad=1

# A checkpoint whose JSON was tampered with.
"$WS" train --data short.txt --seq 2 --batch 1 --steps 1 --width 16 --blocks 1 --out text_run >out 2>err || { echo "train on a text: $(cat err)"; bad=1; }
# tampered TEXT FILE SED-EXPRESSION ARGS...
tampered() {
  local text=$1 file=$2 expression=$3
  shift 3
  rm -rf mended && cp -r text_run mended && sed -i "$expression" mended/checkpoint/$file
  refuses 1 "$text" "$@"
}
resume=(train --resume --steps 2 --out mended)
tampered '"batch" must be a whole number, not 1e+300' config.json 's/"batch": 1/"batch": 1e300/' "${resume[@]}"
tampered '"batch" must be from 1 to' config.json 's/"batch": 1/"batch": -1/' "${resume[@]}"
tampered '"lr" must be a number, not string' config.json 's/"lr": 0.001/"lr": "high"/' "${resume[@]}"
tampered '"optimizer" must be text, not null' config.json 's/"optimizer": "adamw"/"optimizer": null/' "${resume[@]}"
tampered '"symbols" must be a list of texts' config.json 's/"symbols"/"signs": 1, "symbols": 3, "others"/' "${resume[@]}"
tampered '"symbols" must be a list of texts' config.json 's/"symbols"/"symbols": 3, "others"/' generate --checkpoint mended
tampered '"block" must be from 1 to' config.json 's/"block": 2/"block": -1/' generate --checkpoint mended
tampered '"last_losses" must be a list of numbers' state.json 's/"last_losses"/"last_losses": true, "others"/' "${resume[@]}"
echo '[]' >mended/checkpoint/config.json
refuses 1 "config.json must hold an object, not array" "${resume[@]}"

# The last update overflows: found by the validation, after the line of progress, and not saved.
"$WS" train --width 16 --blocks 1 --batch 4 --seq 16 --steps 2 --lr 1e30 --out overflow >out 2>err
[ $? = 1 ] && [ ! -s out ] && tail -n 1 err | grep -q "the validation loss after step 2 is nan" && [ ! -e overflow/checkpoint ] ||
  { echo "--lr 1e30: $(cat out err)"; bad=1; }

WHOLESTEP_DEBUG=9 "$WS" bench --model tiny >out 2>err
[ $? = 1 ] && grep -qF "WHOLESTEP_DEBUG must be a whole number from 0 to 6, not '9'" err || { echo "WHOLESTEP_DEBUG=9: $(cat err)"; bad=1; }
"$WS" >out 2>err && grep -q 'ladder' out && [ ! -s err ] || { echo "without arguments it must print help"; bad=1; }
"$WS" bench --help >out 2>err && grep -q -- '--steps' out && grep -q 'multiple of 16' out || { echo "bench --help fails"; bad=1; }
exit $bad
