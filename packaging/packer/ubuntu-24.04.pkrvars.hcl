# SPDX-License-Identifier: Apache-2.0
name           = "ubuntu-24.04-harvester-node-agent"
image_url      = "https://cloud-images.ubuntu.com/releases/noble/release/ubuntu-24.04-server-cloudimg-amd64.img"
image_checksum = "file:https://cloud-images.ubuntu.com/releases/noble/release/SHA256SUMS"
