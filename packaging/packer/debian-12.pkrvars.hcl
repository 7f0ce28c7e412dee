# SPDX-License-Identifier: Apache-2.0
name           = "debian-12-harvester-node-agent"
image_url      = "https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2"
image_checksum = "file:https://cloud.debian.org/images/cloud/bookworm/latest/SHA512SUMS"
