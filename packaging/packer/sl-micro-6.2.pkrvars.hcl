# SPDX-License-Identifier: Apache-2.0
# SUSE provides the image only to customers: download SL-Micro.x86_64-6.2-Default-qcow-GM.qcow2, which has cloud-init, and its .sha256
# from https://www.suse.com/download/sle-micro/ and set their paths, as for sles-15. To register the build machine:
# transactional-update register -r CODE, and a reboot. Before the last provisioner: transactional-update register -d, and a reboot. Not
# --cleanup: the registration remains, and the snapshots before it have its credentials.
#
# Its root file system is read-only: the build machine reboots into the snapshot with the package. The snapshots before it stay in the
# image, with SSH host keys and the machine-id of the build machine. Delete them on each VM: snapper list, snapper delete NUMBER.
name           = "sl-micro-6.2-harvester-node-agent"
image_url      = "SL-Micro.x86_64-6.2-Default-qcow-GM.qcow2"
image_checksum = "file:SL-Micro.x86_64-6.2-Default-qcow-GM.qcow2.sha256"
cpu            = "max"
disk_size      = "24G"
