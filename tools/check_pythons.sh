#!/usr/bin/env bash
# Runs the whole suite of the Python package under each Python that can be had, on the library of build/.
#
#   tools/check_pythons.sh [VERSION...]          (default: 3.10 3.11 3.12 3.13 3.14)
#
# A Python is that of a Debian release, in a root that debootstrap makes, which only root can; else one of this machine, by its
# name or of pyenv. Each has PyTorch, pytest and NumPy in .deps/pythons/VERSION, from the ordinary index, 0.6 GB that become 1.3;
# stand-ins take the place of CUDA's libraries. FILES="guards threads" runs these files alone, and writes nothing. Else
# docs/versions.md gets a row for each.
#
#   TORCH=2.15.0 WHEEL=build/wheel/overdrive-....whl tools/check_pythons.sh 3.13
#
# The same with a wheel (make wheel) in the place of build/python, and another PyTorch where TORCH is given; writes nothing. Programs of tests
# are those of build/, or of TEST_BUILD: the folder that check_versions.py has built for that PyTorch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

readonly kUsual=2.13.0 kHere=$PWD/.deps/pythons
readonly kTorch=${TORCH:-$kUsual} kTests=$(realpath "${TEST_BUILD:-build}")
[[ $kTorch == "$kUsual" ]] && kOf= || kOf=-$kTorch  # of the folders of another PyTorch
declare -rA kReleases=([3.11]=bookworm [3.13]=trixie [3.14]=forky)
readonly kMirror=${OVERDRIVE_DEBIAN_MIRROR:-http://deb.debian.org/debian}

say() { echo "check_pythons: $*"; }

# --- what is fetched -------------------------------------------------------------------------

pip_for() {  # VERSION ARGUMENTS...
  local version=$1 platform=() tag
  shift
  for tag in 2_28 2_27 2_25 2_17; do platform+=(--platform "manylinux_${tag}_x86_64"); done
  env -u PIP_FIND_LINKS -u PIP_CONSTRAINT python3 -m pip install -q --no-input --disable-pip-version-check --only-binary=:all: --upgrade \
    --target "$kHere/$version/site$kOf" --python-version "$version" --implementation cp "${platform[@]}" "$@" 2>>"$kHere/log"
}

fetch_site() {  # VERSION
  local site=$kHere/$1/site$kOf cuda system=$kHere/$1/system name
  [[ -e $kHere/$1/done$kOf ]] && return
  rm -rf "$site" "$system" "$kHere/$1/numpy" && mkdir -p "$site" "$system"
  say "fetching PyTorch $kTorch for Python $1"
  pip_for "$1" --no-deps "torch==$kTorch" || return 1
  pip_for "$1" pytest exceptiongroup tomli scikit-build-core filelock fsspec jinja2 networkx setuptools sympy typing_extensions || return 1
  pip_for "$1" --no-deps numpy --target "$kHere/$1/numpy" || return 1
  cuda=$(sed -n "s/^cuda.*= '\([0-9.]*\)'/\1/p" "$site/torch/version.py")
  if [[ -n $cuda ]]; then
    pip_for "$1" --no-deps "nvidia-cuda-runtime==$cuda.*" "nvidia-cuda-cupti==$cuda.*" || return 1
    for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 libstdc++.so.6 libgcc_s.so.1; do
      ln -sf "$(gcc -print-file-name="$name")" "$system/$name"
    done
    ln -sf "$(realpath /lib64/ld-linux-x86-64.so.2)" "$system/ld-linux-x86-64.so.2"
    python3 tools/cuda_stand_ins.py gcc "$site/torch/lib" "$site/torch/lib" "$site"/nvidia/*/lib "$system" || return 1
  fi
  touch "$kHere/$1/done$kOf"
}

# The Python of this machine, else nothing. A shim of pyenv may find none, and says where its program is.
program_of() {  # VERSION
  local program
  for program in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/"bin/python$1"; do
    "$program" -c "import sys; '%d.%d' % sys.version_info[:2] == '$1' or sys.exit(1); print(sys.executable)" 2>/dev/null && return
  done
  return 0
}

make_root() {  # VERSION
  local release=${kReleases[$1]-} root=$kHere/$1/root new=$kHere/$1/root.new scripts=/usr/share/debootstrap/scripts script=
  [[ -n $release ]] || return 1
  [[ -e $root/usr/bin/python$1 ]] && return
  [[ $(id -u) == 0 ]] && command -v debootstrap >/dev/null || return 1
  [[ -e $scripts/$release ]] || script=$scripts/sid
  say "making a $release, for its Python"
  rm -rf "$root" "$new" && mkdir -p "$new/etc/dpkg/dpkg.cfg.d"
  echo force-unsafe-io >"$new/etc/dpkg/dpkg.cfg.d/fast"  # dpkg does not wait for the disk
  debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv,libgomp1,git,binutils \
    "$release" "$new" "$kMirror" $script >>"$kHere/log" 2>&1 && [[ -e $new/usr/bin/python$1 ]] || return 1
  rm -rf "$new"/var/cache/apt/archives/*.deb
  mv "$new" "$root"
}

# --- what is run -----------------------------------------------------------------------------

# in_root ROOT COMMAND...: this checkout lies there at the same place, with what is mounted in it. The mounts end with the command.
# Tests interrupt programs, and what a shell started in the background ignores SIGINT.
in_root() {
  local root=$1
  shift
  mkdir -p "$root$PWD"
  # shellcheck disable=SC2016
  unshare --mount bash -c 'mount --rbind "$PWD" "$0$PWD"; mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"
    here=$PWD; exec chroot "$0" env --chdir="$here" --default-signal=INT "$@"' "$root" "$@"
}

test_files() { sed -n '/^foreach(_name$/,/)/s/^    \([a-z_]*\)$/\1/p' test/python/CMakeLists.txt; }

run_suite() {  # VERSION
  local version=$1 program name status path command passed=0 skipped=0 failed=()
  mkdir -p "$kHere/$version"
  if make_root "$version"; then
    program=/usr/bin/python$version command=(in_root "$kHere/$version/root")
  else
    program=$(program_of "$version") command=(env --default-signal=INT)
    [[ -n $program ]] || { say "no Python $version is here, and Debian's cannot be had: $kHere/log"; return; }
  fi
  fetch_site "$version" || { say "no PyTorch $kTorch for Python $version: $kHere/log"; return; }
  command+=("OVERDRIVE_TEST_WHEEL=$wheel" OMP_NUM_THREADS=1 "OVERDRIVE_TEST_BUILD=$kTests" "OVERDRIVE_TEST_PLUGIN=$kTests/lib/liboverdrive_test_plugin.so"
    "OVERDRIVE_TEST_STEP_PROGRAM=$kTests/bin/overdrive_test_step_program" HOME=/tmp "PATH=$PATH")
  for name in ${FILES:-$(test_files)}; do
    status=0 path=$package:$kHere/$version/site$kOf
    [[ $name == *numpy ]] && path+=:$kHere/$version/numpy  # as by CTest, the others have none
    "${command[@]}" "PYTHONPATH=$path" timeout -k 10 1800 "$program" -B -m pytest -q -p no:cacheprovider "test/python/${name}_test.py" \
      >"$kHere/$version/$name$kOf.log" 2>&1 || status=$?
    case $status in
      0) passed=$((passed + 1)) ;;
      5) skipped=$((skipped + 1)) ;;
      *) failed+=("$name") ;;
    esac
    say "$version $name: $(tail -n 1 "$kHere/$version/$name$kOf.log")"
  done
  say "$version, PyTorch $kTorch: $passed files passed, $skipped skipped, ${#failed[@]} failed${failed[*]:+ (${failed[*]})}; tests: $(tests_of "$version")"
  [[ -n ${FILES-}${WHEEL-} ]] || write_row "$version" "$("${command[@]}" "$program" -c 'import sys; print(sys.version.split()[0])')" \
    "$passed files passed, $skipped skipped, ${#failed[@]} failed${failed[*]:+ (${failed[*]})}; tests: $(tests_of "$version")"
  ((${#failed[@]} == 0)) || bad=1
}

# The last lines of pytest, added: "1200 passed, 3 skipped".
tests_of() {  # VERSION
  local name
  for name in ${FILES:-$(test_files)}; do tail -n 1 "$kHere/$1/$name$kOf.log"; done |
    awk '{ for (i = 2; i <= NF; ++i) if ($i ~ /^(passed|failed|skipped|xfailed|errors?),?$/) { sub(/s?,?$/, "", $i); sum[$i] += $(i - 1) } }
      END { printf "%d passed, %d failed", sum["passed"], sum["failed"] + sum["error"]; if (sum["skipped"]) printf ", %d skipped", sum["skipped"] }'
}

write_row() {  # VERSION FULL TEXT
  local row="| CPython $1 | $2 | $3 ($(date +%F), $(git rev-parse --short HEAD)) |"
  python3 - "$1" "$row" <<'END'
import re, sys
version, row = sys.argv[1:]
page = open("docs/versions.md").read()
changed = re.sub(rf"^\| CPython {re.escape(version)} \|.*$", lambda _: row, page, flags=re.M)
open("docs/versions.md", "w").write(changed)
END
}

bad=0
mkdir -p "$kHere"
# The wheel is one for all. The Python that builds it has auditwheel.
rm -rf "$kHere/wheel" "$kHere/package"
if [[ -n ${WHEEL-} ]]; then
  wheel=$(realpath "$WHEEL") package=$kHere/package
  python3 -m pip install -q --no-input --disable-pip-version-check --no-deps --no-index --target "$package" "$wheel"
else
  [[ -z $kOf ]] || { say "another PyTorch needs a WHEEL"; exit 2; }
  .deps/python/bin/python tools/make_wheel.py "$kHere/wheel" build
  wheel=$(find "$kHere/wheel" -name '*.whl') package=$PWD/build/python
fi
(($#)) || set -- 3.10 3.11 3.12 3.13 3.14
for each in "$@"; do run_suite "$each"; done
exit $bad
