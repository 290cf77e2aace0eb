#!/usr/bin/env bash
# All workloads of check_pipeline.py on all GPUs of this machine; results in the folder given first.
set -u
folder=$1
commit=${2:-unknown}
gpus=$(nvidia-smi --list-gpus | wc -l)
for workload in ${3:-ag_gemm gemm_rs gemm_ar mlp user_op}; do
    timeout "${LIMIT:-110}" torchrun --nproc-per-node "$gpus" benchmarks/check_pipeline.py "$workload" \
        --calls "${CALLS:-200}" --commit "$commit" --json "$folder/pipeline_${gpus}xh200_$workload.json" 2>&1 |
        grep -v -e 'OMP_NUM_THREADS' -e '\*\*\*\*' -e '^W[0-9]'
    echo "$workload: exit ${PIPESTATUS[0]}"
done
