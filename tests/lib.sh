# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts of the tests share. A script that sources it sets `stage`, the name of what it tests, and stands at the top of the
# checkout.
# shellcheck disable=SC2034

target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR=$target CARGO_TERM_COLOR=never PATH=$PATH:/usr/sbin:/sbin
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '== %s\n' "$*"; }

# Ends a stage that cannot run here. The line is counted by `tests/run`. With HNA_REQUIRE that is a failure.
skip() { echo "SKIP ${stage:?}: $*"; [ -z "${HNA_REQUIRE:-}" ] || exit 1; exit 0; } # why

# Runs a command as root.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }

# Makes the rest of the script run as root: it begins again, with these variables.
become_root() { # why, names of variables...
  local why=$1 names=CARGO_TARGET_DIR,KUBEBUILDER_ASSETS name; shift
  [ "$(id -u)" != 0 ] || return 0
  can_be_root || skip "$why, and sudo is not available"
  for name in "$@"; do names+=,$name; done
  exec sudo -n --preserve-env="$names" -- "$PWD/tests/$stage/${script:-run}" "${arguments[@]}"
}
arguments=("$@")

# Installs the Debian packages whose commands, or files given by path, are missing, in one call, whichever other script does so at
# the same time.
# Without systemd in view no package starts its service.
need() { # COMMAND=PACKAGE...
  local pair command packages=() services=() hidden=()
  # shellcheck disable=SC2016
  [ ! -d /run/systemd/system ] || hidden=(unshare --mount sh -ec 'mount -t tmpfs tmpfs /run/systemd; exec "$@"' sh)
  for pair in "$@"; do
    command=${pair%=*}
    ! command -v "$command" >/dev/null || continue
    [[ $command != /* || ! -e $command ]] || continue
    packages+=("${pair#*=}")
    services+=("$command.service" "${pair#*=}.service")
  done
  [ ${#packages[@]} -gt 0 ] || return 0
  can_be_root || skip "these Debian packages are not installed, and sudo is not available: ${packages[*]}"
  say "installing Debian packages: ${packages[*]}" >&2
  # shellcheck disable=SC2016
  as_root flock /run/lock/harvester-node-agent-tests "${hidden[@]}" sh -ec '
    install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends "$@" >/dev/null; }
    [ -n "$(find /var/lib/apt/lists -maxdepth 1 -name "*Packages*" -mmin -600 -print -quit)" ] || apt-get update -qq
    install "$@" || { apt-get update -qq; install "$@"; }
  ' sh "${packages[@]}"
  # Nor at the next boot. A service has the name of its command or of its package.
  [ ! -d /run/systemd/system ] ||
    for command in "${services[@]}"; do as_root systemctl --quiet disable "$command" 2>/dev/null || true; done
}

# Makes programs of Kubernetes 1.20, and of 1.36 where they are packed beside the checkout, unless a directory of KUBEBUILDER_ASSETS
# has them. Tests look there and in `target`. Says which releases they find.
need_kubernetes() { # kube-apiserver or kubelet...
  local program dir
  for program in "$@"; do
    if [ -z "$(kubernetes_release 1.20 "$program")" ]; then
      dir=$target/envtest
      mkdir -p "$dir"
      # Its tests are then skipped.
      flock "$dir" tests/lab/kubernetes "$program" "$dir" >&2 || [ $? = 3 ]
    fi
    if [ -z "$(kubernetes_release 1.36 "$program")" ]; then
      dir=$target/envtest-1.36
      mkdir -p "$dir"
      flock "$dir" tests/lab/kubernetes "$program" "$dir" 1.36 >&2 || [ $? = 3 ]
    fi
    dir=$(kubernetes_release 1.36 "$program")
    say "tests run on $program $(kubernetes_release 1.20 "$program")${dir:+ and $dir}"
    [ -n "$dir" ] ||
      say "to add Kubernetes 1.36, set KUBEBUILDER_ASSETS to a directory of its $program and etcd; see packaging/docs/pages/development.md"
  done
}

# Prints the release of the program of a minor version that tests find, if there is one.
kubernetes_release() { # minor version, program
  local dir release dirs
  IFS=: read -r -a dirs <<<"${KUBEBUILDER_ASSETS:-}"
  for dir in "${dirs[@]}" "$target/envtest" "$target/envtest-1.36"; do
    [ -x "$dir/$2" ] || continue
    release=$("$dir/$2" --version 2>/dev/null) || continue
    release=${release#Kubernetes v}
    [[ $release != "$1".* ]] || { echo "$release"; return; }
  done
}

# Makes a Debian tree. Without one, `$work/mmdebstrap` says why. The files that this shell has open are closed: mmdebstrap tells a
# shell the number of one of its own, and dash takes no number of two digits.
debian_tree() { # directory, arguments of mmdebstrap...
  local directory=$1; shift
  need mmdebstrap=mmdebstrap
  mmdebstrap --variant=minbase --aptopt='Acquire::Retries "5"' "$@" "$directory" 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- >"$work/log" 2>&1 && return
  rm -rf --one-file-system "$directory"
  grep -a '^E: ' "$work/log" | cut -c 1-300 | head -n 1 >"$work/mmdebstrap"
  return 1
}

# Makes the kernel run programs for arm64 with qemu-user, which mmdebstrap asks arch-test.
need_emulation() {
  need qemu-aarch64-static=qemu-user-static update-binfmts=binfmt-support arch-test=arch-test
  [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || as_root sh -ec '
    mountpoint -q /proc/sys/fs/binfmt_misc || mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    update-binfmts --enable qemu-aarch64'
}

# Prints the program that cargo builds for a target.
built_by() { # name of the target, arguments of cargo...
  local name=$1 program; shift
  program=$(cargo "$@" --workspace --quiet --message-format=json | sed -n 's/.*"name":"'"$name"'".*"executable":"\([^"]*\)".*/\1/p')
  [ -x "$program" ] || { say "cargo names no program for $name" >&2; return 1; }
  echo "$program"
}

# Installs a program of crates.io that is missing, in a target directory of its own, so that it waits for no other build. It runs for
# a second: to optimize it would take longer.
need_crate() { # CRATE VERSION
  ! cargo "${1#cargo-}" --version >/dev/null 2>&1 || return 0
  say "installing crate $1 $2" >&2
  env --unset=CARGO_TARGET_DIR nice -n 19 cargo install --quiet --locked --debug "$1" --version "$2"
}
need_auditable() { need_crate cargo-auditable 0.7.7; }
need_nextest() { need_crate cargo-nextest 0.9.143; }

# Sets BINARY to the release binary, and PACKAGES to a directory with a deb, an rpm and a tar of it, and in `later` with a deb and an
# rpm of a later version. Builds what the environment does not name.
need_built_packages() {
  if [ -z "${BINARY:-}" ]; then
    say "building the release binary"
    need_auditable
    BINARY=$(packaging/compile)
  fi
  if [ -z "${PACKAGES:-}" ]; then
    say "building packages"
    PACKAGES=$target/packages/tests
    rm -rf "$PACKAGES"
    BINARY=$BINARY OUT=$PACKAGES packaging/build
    BINARY=$BINARY OUT=$PACKAGES/later VERSION=999.0.0 packaging/build deb rpm
  fi
  export BINARY PACKAGES
}

# Runs a check, in a subshell of its own and outside any condition: there the first command that fails ends it. What it printed is
# shown when it fails; otherwise only the lines that begin with "# " or "SKIP ". Needs `work`.
failed=0
check() { # name, command... (by default the name is the command)
  local name=$1 outcome; shift
  [ $# -gt 0 ] || set -- "$name"
  set +e
  (
    level=$BASH_SUBSHELL
    # shellcheck disable=SC2154
    trap '[ "$BASH_SUBSHELL" != "$level" ] || { tell_where "$LINENO" "$BASH_COMMAND"; trap - ERR; }' ERR
    set -eE
    "$@"
  ) >"${work:?}/said" 2>&1
  outcome=$?
  set -e
  if [ "$outcome" = 0 ]; then
    grep -E '^(# |SKIP )' "$work/said" || true
    echo "test ${stage:?}::$name ... ok"
    return
  fi
  after_failure
  cat "$work/said"
  echo "test ${stage:?}::$name ... FAILED"
  failed=1
}

# Prints the lines of a command that failed and of those that called it, up to the check.
tell_where() { # line, command
  local at lines=("$1" "${BASH_LINENO[@]:1}") where=""
  for ((at = 1; at < ${#FUNCNAME[@]}; at++)); do
    [ "${FUNCNAME[at]}" != check ] || break
    where+="${BASH_SOURCE[at]##*/}:${lines[at - 1]} "
  done
  echo "$where${2%%$'\n'*}" >&2
}

# What is printed before the output of a check that failed. A stage may define its own.
after_failure() { :; }

# Makes `work`, a directory that is removed when the script ends, after the function `clean_up`, which a stage may define.
own_directory() {
  work=$(mktemp -d ${1:+--tmpdir="$1"})
  trap 'clean_up; rm -rf --one-file-system "$work"' EXIT
}
clean_up() { :; }

# The same for a stage that starts processes with `in_background`: what they started must end within a minute.
own_directory_and_processes() {
  own_directory
  # Whatever is started inherits this lock; it is free when the last of it is gone.
  exec 9>"$work/lock"
  flock --shared 9
  trap end_processes EXIT
  # Children are process groups.
  set -m
}

# Runs a command to its end, which a signal does not have to wait for.
in_background() {
  local code=0
  TMPDIR=$work "$@" &
  child=$!
  wait "$child" || code=$?
  child=""
  return "$code"
}

end_processes() {
  # The whole group. All else ends by itself when it is gone.
  [ -z "${child:-}" ] || kill -TERM -- "-$child" 2>/dev/null || true
  exec 9>&-
  flock --exclusive --timeout 60 "$work/lock" rm -rf --one-file-system "$work" || { echo "test $stage::everything_has_ended ... FAILED"; exit 1; }
}
