#!/usr/bin/env bash
# Builds Overdrive on a machine with a CUDA device and a CUDA LibTorch (2.11 or newer), runs the whole test suite with
# its _CUDA cases, then the benchmarks, and writes build-gpu/gpu_check.json and build-gpu/gpu_check.md.
#
#   tools/gpu_check.sh [--out FOLDER] [--jobs N]
#
# Nothing is fetched. LibTorch comes from Torch_DIR or CMAKE_PREFIX_PATH, else from the Python that can import torch;
# GoogleTest from the folder that GTEST_SOURCE_DIR names (with googletest/ and googlemock/ in it), else from the
# installed package; nlohmann/json and CLI11 must be there. Exit status: 0 everything passed, 1 something failed,
# 2 nothing could be checked here (and no file is written).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=$PWD/build-gpu
jobs=$(nproc)
while (($#)); do
  case $1 in
    --out) out=$(realpath -m "${2:?--out needs a folder}"); shift 2 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    *) echo "gpu_check: unknown argument '$1'; see the head of tools/gpu_check.sh" >&2; exit 2 ;;
  esac
done

cannot() {
  echo "gpu_check: $*" >&2
  echo "gpu_check: nothing was checked on a GPU." >&2
  exit 2
}

# --- is there anything to check with? ---

command -v nvidia-smi >/dev/null || cannot "no GPU here: nvidia-smi, which comes with the driver, is not installed."
gpus=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1) ||
  cannot "no GPU here: nvidia-smi says: $gpus"
[[ -n $gpus ]] || cannot "no GPU here: nvidia-smi lists none."

torch_dir=${Torch_DIR-}
if [[ -z $torch_dir ]]; then
  IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH-}"
  for prefix in "${prefixes[@]}"; do
    for dir in "$prefix" "$prefix/Torch" "$prefix/share/cmake/Torch"; do
      if [[ -z $torch_dir && -f $dir/TorchConfig.cmake ]]; then torch_dir=$dir; fi
    done
  done
fi
if [[ -z $torch_dir ]]; then
  torch_dir=$(python3 -c 'import torch.utils; print(torch.utils.cmake_prefix_path + "/Torch")' 2>/dev/null) ||
    cannot "no LibTorch: name one by Torch_DIR or CMAKE_PREFIX_PATH, or let python3 import torch."
fi
[[ -f $torch_dir/TorchConfig.cmake ]] || cannot "there is no TorchConfig.cmake in $torch_dir."
[[ -e $torch_dir/../../../lib/libtorch_cuda.so ]] || cannot "the LibTorch of $torch_dir is a build without CUDA."
torch_version=$(sed -n 's/^set(PACKAGE_VERSION "\([^"]*\)".*/\1/p' "$torch_dir/TorchConfigVersion.cmake")
[[ $(printf '%s\n' 2.11 "$torch_version" | sort -V | head -n 1) == 2.11 ]] ||
  cannot "LibTorch $torch_version is older than 2.11."
export CUDACXX=${CUDACXX:-$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")}
[[ -x $CUDACXX ]] || cannot "no CUDA toolkit: nvcc compiles the CUDA kernels to be checked (set CUDA_HOME)."
if [[ -n ${GTEST_SOURCE_DIR-} && ! -f $GTEST_SOURCE_DIR/CMakeLists.txt ]]; then
  cannot "GTEST_SOURCE_DIR=$GTEST_SOURCE_DIR holds no CMakeLists.txt."
fi

# --- build, test, measure ---

mkdir -p "$out"
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
cmake -S . -B "$out" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DOVERDRIVE_UNITY=ON -DOVERDRIVE_CUDA=on \
  -DOVERDRIVE_BUILD_TESTS=ON -DOVERDRIVE_BUILD_BENCHMARKS=ON -DOVERDRIVE_BUILD_EXAMPLES=ON \
  -DTorch_DIR="$torch_dir" ${GTEST_SOURCE_DIR:+-DGTEST_SOURCE_DIR="$GTEST_SOURCE_DIR"}
cmake --build "$out" -j "$jobs"

failed=()
# Many at a time, each with few threads; those that need the device run alone afterwards, and so do the measurements.
OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive ctest --test-dir "$out" -j $(((jobs + 1) / 2)) --output-on-failure --output-junit "$out/tests.xml" || failed+=(tests)
"$out/bin/engine_cuda_test" --gtest_output="json:$out/cuda_tests.json" || failed+=(cuda_tests)
"$out/bin/overdrive_gpu_bench" >"$out/gpu_bench.json" || failed+=(gpu_bench)
"$out/bin/overdrive" bench engine --quick --json "$out/engine_bench.json" || failed+=(engine_bench)
"$out/bin/overdrive" bench devices --json "$out/devices_bench.json" || failed+=(devices_bench)

GPUS=$gpus TORCH=$torch_version NVCC=$("$CUDACXX" --version | tail -n 1) FAILED="${failed[*]-}" \
  COMMIT=$(git rev-parse --short HEAD 2>/dev/null || echo unknown) python3 tools/gpu_report.py "$out"
if ((${#failed[@]})); then
  echo "gpu_check: FAILED: ${failed[*]}" >&2
  exit 1
fi
