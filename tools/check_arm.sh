#!/usr/bin/env bash
# Builds the library and some of the tests for 64-bit ARM with Debian's cross compiler, and runs the tests by qemu.
#
#   tools/check_arm.sh [--only-setup] [ARGUMENTS OF CTEST...]
#
# JOBS compiles at a time. ARM_CPU is the processor that qemu plays (default: neoverse-n1); LibTorch has other kernels for
# max,sve-default-vector-length=32 and for max,sve-default-vector-length=16.
# Everything that is fetched lies in .deps/aarch64: the PyTorch of the package index, for Python a CUDA build; two
# of CUDA's libraries; Debian's C and C++ libraries and Python for ARM. Nothing of it is installed on this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly kFolder=$PWD/.deps/aarch64
readonly kRoot=$kFolder/root kSite=$kFolder/site
readonly kTorchVersion=2.13.0
# Another number here has everything fetched again.
readonly kFetched="1, PyTorch $kTorchVersion"
readonly kPrograms=(engine_core_test engine_plan_tests engine_linker_slot_test engine_rules_tests engine_native_nodes_test
  engine_contract_graph_test engine_contract_state_test hooks_tests replay_tests replay_lanes_tests step_file_tests step_tables_tests parity_tests
  overdrive_test_plugin)
# Of these programs, without the tests that start programs of their own or take an hour by qemu.
readonly kTests='^(engine_(core|plan|serial_order|device_plan|linker_slot|forwarding|differences|shadow_check|native_nodes|contract_graph|contract_state)|regressions|hooks_(saved_tensor|packers)|replay_[a-z_]*|parity_fuzz_(hooks|order)|python_(package|capture|hooks|threads))_test$'

say() { echo "check_arm: $*"; }
fail() {
  echo "check_arm: $*" >&2
  exit 1
}

# --- what is fetched -------------------------------------------------------------------------

setup_packages() {
  local missing=() tool
  for tool in aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static; do
    command -v "${tool%%:*}" >/dev/null || missing+=("${tool#*:}")
  done
  [[ -d /usr/src/googletest ]] || missing+=(googletest)
  ((${#missing[@]} == 0)) && return
  say "installing ${missing[*]} (about 200 MB)"
  local install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
  [[ $(id -u) == 0 ]] || install=(sudo -n "${install[@]}")
  DEBIAN_FRONTEND=noninteractive "${install[@]}" >.deps/arm.log 2>&1 ||
    fail "these packages are missing: sudo apt-get install ${missing[*]}"
}

# Debian's packages for ARM, unpacked and not installed: the lists of packages are of our own folder.
setup_root() {
  local state=$kFolder/apt python
  say "fetching Debian's C and C++ libraries and Python for ARM (30 MB)"
  mkdir -p "$state/lists/partial" "$state/archives/partial" "$kRoot"
  local apt=(-q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$state/lists"
    -o Dir::State::status=/dev/null -o Dir::Cache="$state")
  apt-get "${apt[@]}" update >.deps/arm.log 2>&1 || fail "no lists of Debian's packages: .deps/arm.log"
  python=$(apt-cache "${apt[@]}" show python3-minimal | sed -n 's/^\(Pre-\)*Depends:.*python\(3\.[0-9]*\)-minimal.*/\2/p' | head -n 1)
  (cd "$state/archives" && apt-get "${apt[@]}" download libc6 libgcc-s1 libstdc++6 zlib1g libbz2-1.0 libcrypt1 libexpat1 \
    libffi8 liblzma5 libsqlite3-0 libssl3 libuuid1 "python$python-minimal" "libpython$python-minimal" \
    "libpython$python-stdlib") >>.deps/arm.log 2>&1 || fail "Debian's packages did not come: .deps/arm.log"
  for file in "$state"/archives/*.deb; do dpkg -x "$file" "$kRoot"; done
  echo "$python" >"$kFolder/python_version"
}

# LibTorch reads the processor's kind from files in which qemu shows this machine's.
describe_processor() {
  local i
  mkdir -p "$kRoot/proc" "$kRoot/sys/devices/system/cpu/cpu0/regs/identification"
  echo 0x00000000413fd0c1 >"$kRoot/sys/devices/system/cpu/cpu0/regs/identification/midr_el1"
  for ((i = 0; i < $(nproc); ++i)); do
    printf '%s\t: %s\n' processor $i Features "fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm asimddp" \
      "CPU implementer" 0x41 "CPU architecture" 8 "CPU variant" 0x3 "CPU part" 0xd0c "CPU revision" 1
    echo
  done >"$kRoot/proc/cpuinfo"
}

pip_for_arm() {
  local platform=() tag
  for tag in manylinux_2_28 manylinux_2_27 manylinux_2_25 manylinux_2_17 manylinux2014; do platform+=(--platform "${tag}_aarch64"); done
  python3 -m pip install -q --no-input --disable-pip-version-check --only-binary=:all: --target "$kSite" --upgrade \
    --python-version "$(<"$kFolder/python_version")" --implementation cp "${platform[@]}" "$@" 2>>.deps/arm.log
}

setup_torch() {
  local cuda
  say "fetching PyTorch $kTorchVersion for ARM into .deps/aarch64 (430 MB, 1.3 GB unpacked)"
  pip_for_arm --no-deps "torch==$kTorchVersion+cpu" || pip_for_arm --no-deps "torch==$kTorchVersion" ||
    fail "no PyTorch $kTorchVersion for ARM: .deps/arm.log"
  say "fetching the Python packages that it imports, and pytest (20 MB)"
  pip_for_arm pytest filelock fsspec jinja2 networkx setuptools sympy typing_extensions || fail "pip failed: .deps/arm.log"
  cuda=$(sed -n "s/^cuda.*= '\([0-9.]*\)'/\1/p" "$kSite/torch/version.py")
  [[ -n $cuda ]] || return 0
  say "fetching two libraries of CUDA $cuda, which a CUDA build loads (13 MB)"
  pip_for_arm --no-deps "nvidia-cuda-runtime==$cuda.*" "nvidia-cuda-cupti==$cuda.*" || fail "pip failed: .deps/arm.log"
  python3 tools/cuda_stand_ins.py aarch64-linux-gnu-gcc "$kSite/torch/lib" "$kFolder/stand-ins" \
    "$kSite"/nvidia/*/lib "$kRoot"/{usr/,}lib/aarch64-linux-gnu
}

# A Python for the tests, which start others like it by sys.executable.
setup_python() {
  cat >"$kFolder/python" <<END
#!/bin/sh
exec qemu-aarch64-static -L "$kRoot" -E LD_LIBRARY_PATH="$kFolder/stand-ins" "$kRoot/usr/bin/python$(<"$kFolder/python_version")" "\$@"
END
  chmod +x "$kFolder/python"
  echo "import sys; sys.executable = '$kFolder/python'" >"$kSite/sitecustomize.py"
}

setup() {
  mkdir -p "$kFolder"
  setup_packages
  [[ -f $kFolder/done && $(<"$kFolder/done") == "$kFetched" ]] && return
  rm -rf "$kFolder" && mkdir -p "$kFolder"
  setup_root
  setup_torch
  setup_python
  describe_processor
  echo "$kFetched" >"$kFolder/done"
}

# --- what is built and run -------------------------------------------------------------------

exec </dev/null
setup
[[ ${1-} == --only-setup ]] && exit
export QEMU_CPU=${ARM_CPU:-neoverse-n1}
# Tests that start their program again are skipped: qemu does that only with the kernel's help (binfmt_misc).
export OVERDRIVE_TEST_EMULATED=1
# An emulated random program takes half a minute.
export OVERDRIVE_CAPTURE_FUZZ=${OVERDRIVE_CAPTURE_FUZZ:-1:8}
cmake --preset aarch64
cmake --build --preset aarch64 -j "${JOBS:-$(nproc)}" --target overdrive overdrive_autoload "${kPrograms[@]}"
(($#)) || set -- -R "$kTests"
exec ctest --preset aarch64 "$@"
