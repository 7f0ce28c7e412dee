# SPDX-License-Identifier: Apache-2.0
name           = "debian-13-harvester-node-agent"
image_url      = "https://cloud.debian.org/images/cloud/trixie/latest/debian-13-genericcloud-amd64.qcow2"
image_checksum = "file:https://cloud.debian.org/images/cloud/trixie/latest/SHA512SUMS"
