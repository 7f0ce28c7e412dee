#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An entry for Flatcar's sysext-bakery, which calls these functions: copy this directory into it, set `url` and `fingerprint`, and run
#
#   ./bakery.sh create harvester-node-agent VERSION
#
# `packaging/build sysext` makes the same image without the bakery.

# shellcheck disable=SC2034
RELOAD_SERVICES_ON_MERGE="true"

# The files of a release, on your server.
url=https://packages.example.com
# The fingerprint of the key that signs the releases, in capital letters and without spaces. Get it another way than from that server.
fingerprint=

function list_available_versions() {
  curl --fail --silent --show-error --location "$url/SHA256SUMS" |
    sed -n 's/.*  harvester-node-agent-\(.*\)-x86_64\.tar\.xz$/\1/p'
}

function populate_sysext_root() {
  local sysextroot="$1" arch="$2" version="$3" file
  case "$arch" in
    x86-64) arch=x86_64 ;;
    arm64) arch=aarch64 ;;
  esac
  file="harvester-node-agent-$version-$arch.tar.xz"
  [ -n "$fingerprint" ] || { echo "create.sh: set fingerprint" >&2; return 1; }
  curl --fail --silent --show-error --location --remote-name "$url/{$file,SHA256SUMS,SHA256SUMS.asc,harvester-node-agent.asc}" || return 1
  # The key is from the same server as what it signs: only a signature of the one with the fingerprint counts.
  gpg --yes --dearmor --output key.gpg harvester-node-agent.asc || return 1
  gpgv --status-fd 1 --keyring ./key.gpg SHA256SUMS.asc SHA256SUMS >signed || return 1
  grep -qx "\[GNUPG:\] VALIDSIG .* $fingerprint" signed ||
    { echo "create.sh: SHA256SUMS has no signature of the key $fingerprint" >&2; return 1; }
  grep "  $file\$" SHA256SUMS | sha256sum --check --strict || return 1
  tar --extract --file="$file" --directory="$sysextroot"
}
