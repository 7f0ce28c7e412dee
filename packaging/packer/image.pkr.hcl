# SPDX-License-Identifier: Apache-2.0
# An image with harvester-node-agent from a distribution's own cloud image, on the qemu builder. One template for all
# distributions; what differs is in the *.pkrvars.hcl beside it. Use it by ./bake, which makes the key to log in with:
#
#   ./bake debian-12 harvester-node-agent_0.1.0_amd64.deb
#
# Works with packer 1.6.6 (Debian 12) and later. Since 1.14 packer has no builders of its own; once per user:
#
#   packer plugins install github.com/hashicorp/qemu
#
# Upload the result in Harvester under Images > Create > File, or make it available by HTTP and give the URL.

variable "name" {
  type        = string
  description = "Name of the image."
}

variable "image_url" {
  type        = string
  description = "The distribution's cloud image: a URL or a path."
}

variable "image_checksum" {
  type        = string
  description = "Its checksum: sha256:..., sha512:..., or file:URL of a list of checksums."
}

variable "package" {
  type        = string
  description = "The package of harvester-node-agent: a .deb or a .rpm."
}

variable "seed" {
  type        = string
  description = "Directory with meta-data and user-data for the build machine; made by ./bake."
}

variable "ssh_private_key_file" {
  type        = string
  description = "Key to log in to the build machine with; made by ./bake, and never in the image."
}

variable "output_directory" {
  type        = string
  default     = "output"
  description = "Where the image is put; must not exist."
}

variable "accelerator" {
  type        = string
  default     = "kvm"
  description = "kvm, or tcg on a machine without /dev/kvm (ten times slower)."
}

variable "disk_size" {
  type    = string
  default = "8G"
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
  description = "Whether the image is made small; it takes a while."
}

variable "ssh_timeout" {
  type    = string
  default = "20m"
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
  headless         = true

  # cloud-init's NoCloud: a CD with this label. It goes with the build machine and is no part of the image.
  cd_files = ["${var.seed}/meta-data", "${var.seed}/user-data"]
  cd_label = "cidata"

  # root, because a user made for the build could not remove himself at its end.
  ssh_username         = "root"
  ssh_private_key_file = var.ssh_private_key_file
  ssh_timeout          = var.ssh_timeout
  shutdown_command     = "systemctl poweroff"

  vm_name          = "${var.name}.qcow2"
  output_directory = var.output_directory
}

build {
  sources = ["source.qemu.image"]

  # The network and the package lock are cloud-init's until it has ended; its verdict on the distribution's own modules is
  # not ours to judge.
  provisioner "shell" {
    inline = ["cloud-init status --wait >/dev/null || true", "mkdir -p /run/bake"]
  }

  provisioner "file" {
    source      = var.package
    destination = "/run/bake/${basename(var.package)}"
  }

  # The last one: it takes away what would be needed for another. The login stays open until the machine is off.
  provisioner "shell" {
    script          = "${path.root}/provision"
    execute_command = "chmod +x {{ .Path }} && {{ .Vars }} {{ .Path }} /run/bake/${basename(var.package)}"
  }
}
