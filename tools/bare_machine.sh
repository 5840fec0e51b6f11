#!/usr/bin/env bash
# Follows the README on a bare machine: a new Debian root with git, make and Python 3, a clean clone of HEAD, and nothing else
# of this machine: no cache, no environment variable, no pip settings, no package. Run as root; it needs debootstrap and 25 GB.
#
#   tools/bare_machine.sh [--short] [--root | --user] [--torch WHAT] [--ccache FOLDER] [--keep] [make target...]
#
# Once as root, and once as a user without sudo, in a path with spaces and with umask 077. --root or --user: only this one.
# A step of the user that stops and names packages is followed: root installs them by the printed line.
# Make targets (default: compare test install) come first, then the smallest find_package program, pip install ., and
# the Python program of the README. The end is a table of steps with their time, and the bytes that apt and pip fetched.
#
# --short: configure, pip install ., and the smallest program on that same build. Only the user, if not told otherwise.
# --torch: a wheel file or a pip requirement that is installed into an environment first, which is then active.
#          Without it set-up fetches PyTorch from the ordinary index.
# --ccache: a folder of this machine that serves as compiler cache. Such a run is faster and less bare.
# --keep: leaves the roots in build-bare/.
# OVERDRIVE_DEBIAN and OVERDRIVE_DEBIAN_MIRROR name another release than bookworm and another mirror.
#
# Exit status: 0 all steps passed, 1 a step failed, 2 a bad argument, 77 this machine cannot make a bare one.
set -euo pipefail
self=$(realpath "${BASH_SOURCE[0]}")
cd "$(dirname "$self")/.."
exec </dev/null

readonly kRelease=${OVERDRIVE_DEBIAN:-bookworm}
readonly kMirror=${OVERDRIVE_DEBIAN_MIRROR:-http://deb.debian.org/debian}
readonly kWork=$PWD/build-bare
readonly kBare=$PWD/.deps/bare-$kRelease.tar.gz  # the root before anything is done in it; kept for 30 days

say() { echo "bare machine: $*"; }
skip() {
  say "skipped: $*" >&2
  exit 77
}
usage() {
  say "$*; the head of tools/bare_machine.sh tells how to call it" >&2
  exit 2
}

# --- this machine ----------------------------------------------------------------------------

look_around() {
  [[ $(id -u) == 0 ]] || skip "only root can make a new root and enter it"
  command -v debootstrap >/dev/null || install_debootstrap || skip "debootstrap is missing (apt-get install debootstrap)"
  command -v unshare >/dev/null || skip "unshare is missing (apt-get install util-linux)"
  unshare --mount --pid --fork --mount-proc true 2>/dev/null || skip "this machine allows no mount namespace"
  local free
  mkdir -p "$kWork"
  free=$(df --output=avail -BG "$kWork" | tail -n 1)
  ((${free//[^0-9]/} >= 25)) || skip "$kWork has ${free// /} free, and 25 GB are needed"
}

install_debootstrap() {
  command -v apt-get >/dev/null || return 1
  say "installing debootstrap"
  apt-get install -y -q debootstrap >/dev/null 2>&1 || { apt-get update -q && apt-get install -y -q debootstrap; } >/dev/null 2>&1
}

make_bare_root() {
  [[ -n $(find "$kBare" -mtime -30 2>/dev/null) ]] && return
  say "making a $kRelease with git, make and python3"
  local root=$kWork/new
  rm -rf "$root"
  mkdir -p "$root/etc/dpkg/dpkg.cfg.d"
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/fast"  # dpkg does not wait for the disk
  debootstrap --variant=minbase --include=git,make,python3 "$kRelease" "$root" "$kMirror" >"$kWork/debootstrap.log" 2>&1 ||
    { tail -n 5 "$kWork/debootstrap.log" >&2; skip "debootstrap found no $kRelease at $kMirror"; }
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  mkdir -p "$(dirname "$kBare")"
  tar -C "$root" -czf "$kBare.part" --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' . && mv "$kBare.part" "$kBare"
  rm -rf "$root"
}

# What any machine needs to reach the network: names, certificates, proxies and how apt looks at dates.
connect() {
  local root=$1 security=${kMirror%/debian}/debian-security
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    mkdir -p "$root/usr/local/share/ca-certificates"
    cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
  fi
  printf '%s\n' "deb $kMirror $kRelease main" "deb $kMirror $kRelease-updates main" \
    "deb $security $kRelease-security main" >"$root/etc/apt/sources.list"
  apt-config dump 2>/dev/null | grep -E '^Acquire::(https?::Proxy|Check-)' >"$root/etc/apt/apt.conf.d/90network" || true
}

# The namespace holds every mount and process, so both end with it, however this script ends.
machine() {  # root|guest
  local root=$kWork/$1
  rm -rf "$root"
  mkdir -p "$root"
  tar -C "$root" -xzf "$kBare"
  connect "$root"
  git clone -q --bare "file://$PWD" "$root/tmp/overdrive.git"
  [[ -f $torch ]] && cp "$torch" "$root/tmp/"
  inner=
  unshare --mount --pid --fork --mount-proc --kill-child \
    bash "$self" --inside "$1" "$short" "$ccache" "$torch" "${targets[@]}" &
  inner=$!
  local status=0
  wait $inner || status=$?
  inner=
  [[ -n $keep ]] || rm -rf "$root"
  return $status
}

leave() {
  trap - EXIT
  [[ -z ${inner-} ]] || { kill -KILL "$inner"; wait "$inner"; } 2>/dev/null || true
  [[ -n $keep ]] || rm -rf "$kWork/new" "$kWork/root" "$kWork/guest"
  exit "$1"
}

# --- inside the namespace: one machine -------------------------------------------------------

enter() {
  who=$1 short=$2 ccache=$3 torch=$4
  shift 4
  targets=("$@")
  root=$kWork/$who
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
  home=/root place=/root/overdrive mask=022
  if [[ $who == guest ]]; then
    bare root 'useradd --create-home --shell /bin/bash guest && chown -R guest:guest /tmp/overdrive.git'
    home=/home/guest place="/home/guest/my projects/over drive" mask=077
  fi
  environment=$place/.venv
  settings=("PIP_LOG=$home/pip.log")
  local name
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [[ -z ${!name-} ]] || settings+=("$name=${!name}")
  done
  rows=()
  steps
}

# bare USER COMMAND: in the bare machine, with the environment of a fresh login.
bare() {
  local user=$1 home=/root mask=022
  [[ $user == root ]] || { home=/home/guest mask=077; }
  chroot --userspec="$user:$user" --groups= "$root" env -i HOME=$home USER="$user" LOGNAME="$user" SHELL=/bin/bash LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive PATH="${activated:+$activated/bin:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    "${settings[@]}" bash -euo pipefail -c "umask $mask; $2"
}

# In MB: the packages that apt keeps, and the sizes in pip's log ("Downloading torch-2.13.0-....whl (530.1 MB)").
fetched() {
  local apt pip
  apt=$(du -cm "$root"/var/cache/apt/archives/*.deb 2>/dev/null | tail -n 1 | cut -f 1)
  pip=$(sed -nE 's/.* Downloading .*\(([0-9.]+) ([kMG]?)B\)$/\1 \2/p' "$root$home/pip.log" 2>/dev/null |
    awk '{ sum += $1 * ($2 == "G" ? 1000 : $2 == "M" ? 1 : 0.001) } END { printf "%.0f", sum }')
  echo "${apt:-0} + ${pip:-0}"
}

# step NAME COMMAND: as the machine's user.
step() {
  local name=$1 begin=$SECONDS status=0 packages before=
  printf '\n=== %s, as %s: %s\n' "$name" "$who" "$2"
  while :; do
    status=0
    bare "$who" "$2" 2>&1 | tee "$kWork/$who.step" || status=$?
    ((status)) || break
    packages=$(sed -n 's/^ *sudo apt-get install //p' "$kWork/$who.step" | tail -n 1)
    [[ $who == guest && -n $packages && $packages != "$before" ]] || break
    printf '\n=== as root, what was asked for: apt-get install %s\n' "$packages"
    bare root "apt-get update -qq && apt-get install -y -qq -o Dpkg::Use-Pty=0 $packages" || break
    before=$packages
  done
  rows+=("$(printf '| %s | %s | %d s | %s |' "$name" "$( ((status)) && echo FAILED || echo passed)" $((SECONDS - begin)) "$(fetched)")")
  ((status == 0)) || finish 1
}

finish() {
  {
    echo "| as $who | | time | MB by apt + pip so far |"
    echo "|---|---|---|---|"
    printf '%s\n' "${rows[@]}"
  } >"$kWork/$who.md"
  exit "$1"
}

steps() {
  local target at="cd '$place'"
  step clone "mkdir -p \"\$(dirname '$place')\" && git clone -q file:///tmp/overdrive.git '$place' && $at && git log -1 --oneline"
  if [[ -n $ccache ]]; then
    mkdir -p "$root/var/cache/ccache"
    mount --bind "$ccache" "$root/var/cache/ccache"
    chmod -R a+rwX "$ccache"
    settings+=(CCACHE_DIR=/var/cache/ccache CCACHE_UMASK=000 CCACHE_MAXSIZE=10G)
    bare root 'apt-get update -qq && apt-get install -y -qq ccache' >/dev/null
  fi
  [[ -z $torch ]] || own_torch
  for target in "${targets[@]}"; do step "make $target" "$at && make $target"; done
  if [[ -n $short ]]; then
    pip_install
    step "cmake --install" "$at && cmake --install build/pip --prefix '$home/over drive'"
    smallest_program
  else
    smallest_program
    pip_install
  fi
  finish 0
}

# PyTorch as somebody has it who works with it: in an environment that is active.
own_torch() {
  local what=$torch
  [[ ! -f $torch ]] || what=/tmp/$(basename "$torch")
  bare root 'apt-get update -qq && apt-get install -y -qq python3-venv' >/dev/null
  step "pip install $(basename "$torch")" "python3 -m venv '$environment' && '$environment/bin/pip' install -q '$what'"
  activated=$environment
}

smallest_program() {
  step "smallest program" "mkdir -p '$home/small program' && cd '$home/small program'
cp '$place/test/package/outside/smallest.cpp' .
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(Smallest LANGUAGES CXX)
find_package(Overdrive REQUIRED)
add_executable(smallest smallest.cpp)
target_link_libraries(smallest PRIVATE Overdrive::overdrive)
END
torch=\$(echo '$environment'/lib/python3*/site-packages/torch)
cmake -B build -DCMAKE_PREFIX_PATH=\"$home/over drive;\$torch\" && cmake --build build && build/smallest"
}

pip_install() {
  step "pip install ." "cd '$place' && '$environment/bin/pip' install ."
  step "import overdrive" "cd '$home' && cat >train.py <<'END'
import overdrive
import torch

overdrive.install()  # every later backward, on all threads

x = torch.ones(3, requires_grad=True)
(x * x).sum().backward()
assert overdrive.stats()['backwards'] == 1
END
'$environment/bin/python' train.py && '$environment/bin/python' -m overdrive train.py"
}

# --- arguments -------------------------------------------------------------------------------

if [[ ${1-} == --inside ]]; then
  trap 'exit 130' INT TERM
  shift
  enter "$@"
fi

short= torch= ccache= keep= only= targets=()
while (($#)); do
  case $1 in
    --short) short=yes ;;
    --root) only=root ;;
    --user) only=guest ;;
    --keep) keep=yes ;;
    --torch) (($# > 1)) || usage "--torch needs a wheel or a requirement"; torch=$2; shift ;;
    --ccache) (($# > 1)) || usage "--ccache needs a folder"; ccache=$2; shift ;;
    -*) usage "unknown option $1" ;;
    *) targets+=("$1") ;;
  esac
  shift
done
[[ $torch != *.whl || -f $torch ]] || usage "there is no wheel $torch"
[[ -z $torch || ! -f $torch ]] || torch=$(realpath "$torch")
[[ -z $ccache ]] || { mkdir -p "$ccache" && ccache=$(realpath "$ccache"); }
if [[ -n $short ]]; then
  : "${only:=guest}"
  ((${#targets[@]})) || targets=(configure-release)
fi
((${#targets[@]})) || targets=(compare test install)
# Where the smallest program looks for it.
for i in "${!targets[@]}"; do
  [[ ${targets[i]} != install ]] || targets[i]="install PREFIX=\"\$HOME/over drive\""
done

look_around
trap 'leave $?' EXIT
trap 'leave 130' INT TERM
make_bare_root
status=0
for each in ${only:-root guest}; do machine $each || status=$?; done
for each in ${only:-root guest}; do
  [[ ! -f $kWork/$each.md ]] || { echo; cat "$kWork/$each.md"; }
done
exit $status
