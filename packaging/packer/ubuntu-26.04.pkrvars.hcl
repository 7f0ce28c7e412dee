# SPDX-License-Identifier: Apache-2.0
name           = "ubuntu-26.04-harvester-node-agent"
image_url      = "https://cloud-images.ubuntu.com/releases/26.04/release/ubuntu-26.04-server-cloudimg-amd64.img"
image_checksum = "file:https://cloud-images.ubuntu.com/releases/26.04/release/SHA256SUMS"
