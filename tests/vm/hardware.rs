// SPDX-License-Identifier: Apache-2.0
//! What a machine is made of: the devices that KubeVirt gives, as arguments of QEMU.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use harvester_lab::pod_info::Pod;

use crate::Setup;

/// What an instruction takes by the clocks of a machine that count them (`-icount` of QEMU): 2 to this many nanoseconds. QEMU's own
/// work, such as to translate the guest's code anew after each move, takes no time by such clocks. Nor does what a real processor waits
/// for its memory: hence 8 ns, several times what one takes for an instruction on average. While the processor has nothing to do, they
/// follow the host's clock.
const INSTRUCTION_SHIFT: u32 = 3;

/// The processor of a machine, and what QEMU and Linux call what differs with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// The 64-bit ARM architecture.
    Arm64,
}

impl Architecture {
    /// QEMU's program.
    pub fn emulator(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// As KubeVirt chooses it.
    fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "q35",
            Self::Arm64 => "virt,gic-version=3",
        }
    }

    /// An emulator takes longer for each feature that the guest uses, such as the vector instructions of newer processors.
    fn emulated_processor(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu64",
            Self::Arm64 => "cortex-a72",
        }
    }

    fn console(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS0",
            Self::Arm64 => "ttyAMA0",
        }
    }

    /// What hands the SMBIOS tables to the kernel: on ARM only UEFI does, and KubeVirt has no other firmware there.
    fn firmware(self) -> &'static str {
        match self {
            Self::Amd64 => "",
            Self::Arm64 => " -bios /usr/share/qemu-efi-aarch64/QEMU_EFI.fd",
        }
    }
}

/// The host's ends of the virtio-serial ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// QEMU's guest agent.
    GuestAgent,
    /// KubeVirt's downward metrics.
    DownwardMetrics,
    /// Our own channel.
    Own,
    /// A serial line, for when the guest agent is not there.
    Witness,
}

impl Port {
    /// All that a machine can have. Before QEMU 9.1, one for ARM has a single serial line, which is the console.
    fn of(architecture: Architecture) -> Vec<Self> {
        let mut ports = vec![Self::GuestAgent, Self::DownwardMetrics, Self::Own];
        if architecture == Architecture::Amd64 {
            ports.push(Self::Witness);
        }
        ports
    }

    /// What the guest knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::GuestAgent => "org.qemu.guest_agent.0",
            Self::DownwardMetrics => "org.github.vhostmd.1",
            Self::Own => "io.harvesterhci.node_agent.0",
            Self::Witness => "",
        }
    }

    /// What QEMU knows it by.
    pub fn id(self) -> &'static str {
        match self {
            Self::GuestAgent => "guest-agent",
            Self::DownwardMetrics => "downward-metrics",
            Self::Own => "own",
            Self::Witness => "witness",
        }
    }
}

/// The firmware's strings.
#[derive(Debug, Clone)]
pub enum Firmware {
    /// As KubeVirt sets them.
    KubeVirt {
        /// `firmware.uuid`.
        uuid: String,
        /// `firmware.serial`.
        serial: Option<String>,
    },
    /// QEMU's own.
    Plain,
}

/// What the machine is made of.
#[derive(Debug, Clone)]
pub struct Hardware {
    /// The directory of `tests/vm/bake`.
    pub image: PathBuf,
    /// Its processor.
    pub architecture: Architecture,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// SMBIOS.
    pub firmware: Firmware,
    /// MAC of the NIC.
    pub mac: String,
    /// Its virtio-serial ports and lines.
    pub ports: Vec<Port>,
    /// Memory, in MiB.
    pub memory: usize,
    /// What the files say that virtiofsd of the next QEMU process shares: those of its pod. None without a share.
    pub pod: Option<Pod<'static>>,
    /// virtiofsd.
    pub virtiofsd: PathBuf,
    /// Whether times in it are measured, so that those of an emulator may not count.
    pub is_timed: bool,
}

impl Hardware {
    /// Everything that the agent can use.
    pub fn new(setup: &Setup, image: &Path, firmware: Firmware, mac: &str) -> Self {
        Self {
            image: image.to_owned(),
            architecture: setup.architecture,
            accelerator: setup.accelerator.clone(),
            firmware,
            mac: mac.to_owned(),
            ports: Port::of(setup.architecture),
            memory: 640,
            pod: None,
            virtiofsd: setup.virtiofsd.clone(),
            is_timed: false,
        }
    }

    /// Whether all clocks of the machine count its instructions.
    fn counts_instructions(&self) -> bool {
        self.is_timed && self.accelerator == "tcg"
    }

    /// By which clock times in the guest are measured, for people.
    pub fn clock(&self) -> String {
        if self.counts_instructions() {
            let nanoseconds = 1 << INSTRUCTION_SHIFT;
            format!(
                "the guest's clock ({nanoseconds} ns for each instruction, and the host's time while there is none)"
            )
        } else {
            "the guest's clock".to_owned()
        }
    }

    /// One processor: several that are emulated would share those of the host, with more that can go wrong.
    fn processors(&self) -> String {
        if self.counts_instructions() {
            format!(" -icount shift={INSTRUCTION_SHIFT},sleep=on")
        } else {
            String::new()
        }
    }

    /// KubeVirt's default passes the host's processor through.
    fn processor(&self) -> &str {
        if self.accelerator == "tcg" {
            self.architecture.emulated_processor()
        } else {
            "max"
        }
    }

    fn kernel_command_line(&self) -> String {
        // What cloud-init does at each boot takes long on one processor, and was done.
        let cloud_init = if self.is_timed {
            " cloud-init=disabled"
        } else {
            ""
        };
        // Mitigations of speculation only cost time where nothing speculates.
        let mitigations = if self.accelerator == "tcg" {
            " mitigations=off"
        } else {
            ""
        };
        let console = self.architecture.console();
        format!("root=/dev/vda rw console={console}{mitigations}{cloud_init}")
    }

    /// What QEMU is started with. `dir` holds the machine's disk and seed.
    pub fn arguments(&self, dir: &Path) -> Vec<String> {
        let image = |file: &str| self.image.join(file).display().to_string();
        let own = |file: &str| dir.join(file).display().to_string();
        let mut line = format!(
            "-nodefaults -no-user-config -display none -machine {},accel={} -cpu {} -smp 1{} -m {}{} \
             -device virtio-serial-pci,id=ports",
            self.architecture.machine(),
            self.accelerator,
            self.processor(),
            self.processors(),
            self.memory,
            self.architecture.firmware(),
        );
        if let Firmware::KubeVirt { uuid, serial } = &self.firmware {
            let serial = serial.as_ref().map(|serial| format!(",serial={serial}"));
            let _ = write!(
                line,
                " -smbios type=1,manufacturer=KubeVirt,product=None,family=KubeVirt,uuid={uuid}{}",
                serial.unwrap_or_default()
            );
        }
        let _ = write!(
            line,
            " -device virtio-net-pci,netdev=net,mac={},guest_announce=on",
            self.mac
        );
        let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for (flag, value) in [
            ("-kernel", image("vmlinuz")),
            ("-initrd", image("initrd")),
            ("-append", self.kernel_command_line()),
            ("-drive", format!("file={},if=virtio", own("disk.qcow2"))),
            (
                "-drive",
                format!("file={},if=virtio,format=raw,readonly=on", own("seed.iso")),
            ),
        ] {
            arguments.extend([flag.to_owned(), value]);
        }
        arguments
    }
}
