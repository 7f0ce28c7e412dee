# SPDX-License-Identifier: Apache-2.0
# SUSE provides the image only to customers: download SLES15-SP6-Minimal-VM.x86_64-Cloud-GM.qcow2 and its .sha256 from
# https://www.suse.com/download/sles/ and set their paths, for example:
#
#   ./bake sles-15 harvester-node-agent-0.1.0-1.x86_64.rpm -var image_url=/images/SLES15-SP6-Minimal-VM.x86_64-Cloud-GM.qcow2 \
#     -var image_checksum=file:/images/SLES15-SP6-Minimal-VM.x86_64-Cloud-GM.qcow2.sha256
#
# The repositories of SUSE require a registration. If the image does not contain qemu-guest-agent, add a shell provisioner
# before the others that registers the build machine (SUSEConnect -r CODE), installs it, and deregisters again (SUSEConnect -d).
name           = "sles-15-harvester-node-agent"
image_url      = "SLES15-SP6-Minimal-VM.x86_64-Cloud-GM.qcow2"
image_checksum = "file:SLES15-SP6-Minimal-VM.x86_64-Cloud-GM.qcow2.sha256"
