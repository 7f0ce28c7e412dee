# SPDX-License-Identifier: Apache-2.0
# Builds an image with harvester-node-agent from the cloud image of an OS, with the qemu builder. One template for all OSes; the
# differences are in the *.pkrvars.hcl files. Run it with ./bake, which creates the SSH key:
#
#   ./bake debian-12 harvester-node-agent_0.1.0_amd64.deb
#
# Works with packer 1.6.6 (Debian 12) and later. packer 1.14 and later needs the builder as a plugin, once per user:
#
#   packer plugins install github.com/hashicorp/qemu
#
# Upload the image in Harvester (Images > Create > File), or provide it at a URL.

variable "name" {
  type        = string
  description = "Name of the image."
}

variable "image_url" {
  type        = string
  description = "Cloud image of the OS: a URL or a path."
}

variable "image_checksum" {
  type        = string
  description = "Checksum of the cloud image: sha256:..., sha512:..., or file:URL of a checksum file."
}

variable "package" {
  type        = string
  description = "Package of harvester-node-agent: a .deb or .rpm file."
}

variable "seed" {
  type        = string
  description = "Directory with meta-data and user-data for the build machine; created by ./bake."
}

variable "ssh_private_key_file" {
  type        = string
  description = "SSH private key for the build machine; created by ./bake, not part of the image."
}

variable "output_directory" {
  type        = string
  default     = "output"
  description = "Output directory; must not exist."
}

variable "accelerator" {
  type        = string
  default     = "kvm"
  description = "QEMU accelerator: kvm, or tcg if /dev/kvm does not exist (ten times slower)."
}

variable "disk_size" {
  type    = string
  default = "8G"
}

variable "cpu" {
  type        = string
  default     = "qemu64"
  description = "CPU model: max for an OS that requires x86-64-v2."
}

variable "memory" {
  type    = number
  default = 2048
}

variable "cpus" {
  type    = number
  default = 2
}

variable "compress" {
  type        = bool
  default     = true
  description = "Compress the image (slow)."
}

variable "ssh_timeout" {
  type    = string
  default = "20m"
}

locals {
  provision = "sh /var/tmp/bake/provision /var/tmp/bake/${basename(var.package)}"
}

source "qemu" "image" {
  iso_url          = var.image_url
  iso_checksum     = var.image_checksum
  disk_image       = true
  disk_size        = var.disk_size
  disk_interface   = "virtio"
  net_device       = "virtio-net"
  format           = "qcow2"
  disk_compression = var.compress
  accelerator      = var.accelerator
  cpus             = var.cpus
  memory           = var.memory
  qemuargs         = [["-cpu", var.cpu]]
  headless         = true

  # A CD for the NoCloud data source of cloud-init. It is not part of the image.
  cd_files = ["${var.seed}/meta-data", "${var.seed}/user-data"]
  cd_label = "cidata"

  # root, because a user created for the build could not remove itself.
  ssh_username         = "root"
  ssh_private_key_file = var.ssh_private_key_file
  ssh_timeout          = var.ssh_timeout
  shutdown_command     = "systemctl poweroff"

  vm_name          = "${var.name}.qcow2"
  output_directory = var.output_directory
}

build {
  sources = ["source.qemu.image"]

  # Until cloud-init has finished, it configures the network and holds the package lock. Errors in modules of the OS do not
  # matter here.
  provisioner "shell" {
    inline = ["cloud-init status --wait >/dev/null || true", "mkdir -m 700 /var/tmp/bake"]
  }

  # Not in /run or /tmp: the build machine may reboot.
  provisioner "file" {
    sources     = [var.package, "${path.root}/provision"]
    destination = "/var/tmp/bake/"
  }

  # On a read-only root file system, the package is installed for the next boot (status 75). The reboot ends the session, with or without
  # a status; packer removes the script that it has uploaded as soon as the build machine is up again.
  provisioner "shell" {
    inline = [
      "if [ -w /usr ] || [ -e /var/tmp/bake/rebooted ]; then exit 0; fi",
      "${local.provision} || [ $? = 75 ]",
      "touch /var/tmp/bake/rebooted",
      "systemctl reboot",
      "sleep 600",
    ]
    expect_disconnect   = true
    valid_exit_codes    = [0, 143]
    start_retry_timeout = var.ssh_timeout
  }

  # Must be the last provisioner: it removes the SSH key, so packer cannot log in again. Its own session stays open.
  provisioner "shell" {
    inline = [local.provision, "rm -r /var/tmp/bake"]
  }
}
