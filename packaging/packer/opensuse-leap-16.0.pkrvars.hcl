# SPDX-License-Identifier: Apache-2.0
name           = "opensuse-leap-16.0-harvester-node-agent"
image_url      = "https://download.opensuse.org/distribution/leap/16.0/appliances/Leap-16.0-Minimal-VM.x86_64-Cloud.qcow2"
image_checksum = "file:https://download.opensuse.org/distribution/leap/16.0/appliances/Leap-16.0-Minimal-VM.x86_64-Cloud.qcow2.sha256"
cpu            = "max"
