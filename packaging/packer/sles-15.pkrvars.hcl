# SPDX-License-Identifier: Apache-2.0
# SUSE gives the image to its customers only: download SLES15-SP6-Minimal-VM.x86_64-Cloud-GM.qcow2 and its .sha256 from
# https://www.suse.com/download/sles/ and say where they are, for instance
#
#   ./bake sles-15 harvester-node-agent-0.1.0-1.x86_64.rpm -var image_url=/images/SLES15-SP6-Minimal-VM.x86_64-Cloud-GM.qcow2 \
#     -var image_checksum=file:/images/SLES15-SP6-Minimal-VM.x86_64-Cloud-GM.qcow2.sha256
#
# Packages that the image lacks come from SUSE's repositories, and those from a registered machine only: where that is
# qemu-guest-agent, register in a shell provisioner before the others (SUSEConnect -r CODE) and give it back after them.
name           = "sles-15-harvester-node-agent"
image_url      = "SLES15-SP6-Minimal-VM.x86_64-Cloud-GM.qcow2"
image_checksum = "file:SLES15-SP6-Minimal-VM.x86_64-Cloud-GM.qcow2.sha256"
