# SPDX-License-Identifier: Apache-2.0
# SUSE provides the image only to customers: download SLES-16.0-Minimal-VM.x86_64-Cloud-GM.qcow2 and its .sha256 from
# https://www.suse.com/download/sles/ and set their paths, as for sles-15. Registration: see sles-15.pkrvars.hcl.
name           = "sles-16-harvester-node-agent"
image_url      = "SLES-16.0-Minimal-VM.x86_64-Cloud-GM.qcow2"
image_checksum = "file:SLES-16.0-Minimal-VM.x86_64-Cloud-GM.qcow2.sha256"
cpu            = "max"
