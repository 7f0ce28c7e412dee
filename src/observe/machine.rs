// SPDX-License-Identifier: Apache-2.0
//! Reads this machine: hostnames, DMI, cloud-init or Afterburn, NICs.

use serde::Deserialize;
use uuid::Uuid;

use crate::facts::machine::{Machine, Vendor};
use crate::facts::names::effective_hostname;
use crate::facts::nic::Nic;
use crate::facts::{Fact, UnavailableKind};
use crate::sys::document::json::damage;
use crate::sys::root::Root;
use crate::wire::netlink::inventory::read_nics;

/// The file of the static hostname; every tool that changes the hostname permanently replaces it.
pub const STATIC_HOSTNAME: &str = "/etc/hostname";

/// The maximum size of a file with a name or an identifier, which has one line.
const LINE_MAX: u64 = 4096;

/// The maximum size of cloud-init's instance data with its copy of user-data; 100 kB is usual.
const INSTANCE_DATA_MAX: u64 = 4 << 20;

/// Where Afterburn writes the attributes of the platform: its own path, and that of Flatcar (`coreos-metadata.service`).
const AFTERBURN: [&str; 2] = ["/run/metadata/afterburn", "/run/metadata/flatcar"];

/// Reads all local facts of this machine.
pub fn read_machine(root: &Root) -> Machine {
    Machine {
        kernel_hostname: kernel_hostname(root),
        static_hostname: static_hostname(root),
        platform_hostname: platform_hostname(root),
        product_uuid: product_uuid(root),
        product_serial: serial(root),
        nics: nics(root),
        vendor: vendor(root),
        machine_id: line(root, "/etc/machine-id"),
    }
}

/// Reads the hostname of the kernel from `/proc/sys`, also below another root, or from `uname(2)` if a sandbox hides it.
fn kernel_hostname(root: &Root) -> Fact<String> {
    match line(root, "/proc/sys/kernel/hostname") {
        Fact::Known(name) => Fact::Known(name),
        missing if root.is_live() => match nix::unistd::gethostname() {
            Ok(name) => Fact::Known(name.to_string_lossy().into_owned()),
            Err(_) => missing,
        },
        missing => missing,
    }
}

/// Reads `/etc/hostname` like systemd: the first line that is neither empty nor a comment (hostname(5)). It may be a template.
fn static_hostname(root: &Root) -> Fact<String> {
    Fact::from(root.read(STATIC_HOSTNAME, LINE_MAX)).and_then(|bytes| {
        let text = String::from_utf8_lossy(&bytes);
        effective_hostname(&text).map(str::to_owned).into()
    })
}

#[derive(Deserialize)]
struct InstanceData {
    v1: Option<InstanceDataV1>,
}

#[derive(Deserialize)]
struct InstanceDataV1 {
    local_hostname: Option<String>,
}

/// Reads the name from cloud-init or, without cloud-init, from Afterburn.
fn platform_hostname(root: &Root) -> Fact<String> {
    let by_afterburn = || AFTERBURN.iter().map(|path| afterburn_hostname(root, path));
    match cloud_init_hostname(root) {
        Fact::Absent => by_afterburn()
            .find(|name| *name != Fact::Absent)
            .unwrap_or(Fact::Absent),
        name => name,
    }
}

/// Reads the attribute `AFTERBURN_KUBEVIRT_HOSTNAME`, whose prefix is `COREOS` on Flatcar.
fn afterburn_hostname(root: &Root, path: &str) -> Fact<String> {
    Fact::from(root.read(path, LINE_MAX)).and_then(|bytes| {
        let text = String::from_utf8_lossy(&bytes);
        let mut attributes = text.lines().filter_map(|line| line.split_once('='));
        let name = attributes.find(|(key, _)| key.ends_with("_KUBEVIRT_HOSTNAME"));
        let name = name.map(|(_, name)| name.trim_matches('"').to_owned());
        name.filter(|name| !name.is_empty()).into()
    })
}

fn cloud_init_hostname(root: &Root) -> Fact<String> {
    let path = "/run/cloud-init/instance-data.json";
    Fact::from(root.read(path, INSTANCE_DATA_MAX)).and_then(|bytes| {
        match serde_json::from_slice::<InstanceData>(&bytes) {
            Ok(data) => {
                let name = data.v1.and_then(|v1| v1.local_hostname);
                name.filter(|name| !name.is_empty()).into()
            }
            Err(error) => Fact::failed(
                UnavailableKind::Malformed,
                format!("`{path}` of cloud-init is damaged: {}", damage(&error)),
            ),
        }
    })
}

/// Reads the serial. KubeVirt omits it if the VM has none; the firmware then shows one of these values.
fn serial(root: &Root) -> Fact<String> {
    match line(root, "/sys/class/dmi/id/product_serial") {
        Fact::Known(text) if ["None", "Not Specified", "0"].contains(&text.as_str()) => {
            Fact::Absent
        }
        seen => seen,
    }
}

/// Reads the NICs that have a device.
fn nics(root: &Root) -> Fact<Vec<Nic>> {
    let nics = Fact::from(read_nics(root));
    nics.and_then(|nics| Some(nics).filter(|nics| !nics.is_empty()).into())
}

fn vendor(root: &Root) -> Fact<Vendor> {
    let sys_vendor = line(root, "/sys/class/dmi/id/sys_vendor");
    let product_family = line(root, "/sys/class/dmi/id/product_family");
    match (sys_vendor, product_family) {
        (Fact::Failed(why), Fact::Failed(_)) => Fact::Failed(why),
        (Fact::Absent, Fact::Absent) => Fact::Absent,
        (sys_vendor, product_family) => Fact::Known(Vendor {
            sys_vendor: sys_vendor.known().cloned().unwrap_or_default(),
            product_family: product_family.known().cloned().unwrap_or_default(),
        }),
    }
}

fn product_uuid(root: &Root) -> Fact<Uuid> {
    let path = "/sys/class/dmi/id/product_uuid";
    line(root, path).and_then(|text| match Uuid::parse_str(&text) {
        Ok(uuid) => Fact::Known(uuid),
        Err(_) => {
            let text = format!("`{path}` has `{}`", text.escape_debug());
            Fact::failed(UnavailableKind::Malformed, text)
        }
    })
}

/// Reads the first line of a file, trimmed; an empty line counts as absent. Bytes that are not UTF-8 are replaced.
fn line(root: &Root, path: impl AsRef<std::path::Path>) -> Fact<String> {
    Fact::from(root.read(path, LINE_MAX)).and_then(|bytes| {
        let text = String::from_utf8_lossy(&bytes);
        let first = text.trim().lines().next();
        first.map(str::to_owned).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        (dir, root)
    }

    #[test]
    fn an_empty_tree_knows_nothing_and_fails_nowhere() {
        let (_dir, root) = tree(&[]);
        let machine = read_machine(&root);
        assert_eq!(machine.kernel_hostname, Fact::Absent);
        assert_eq!(machine.product_uuid, Fact::Absent);
        assert_eq!(machine.nics, Fact::Absent);
        assert_eq!(machine.vendor, Fact::Absent);
    }

    #[test]
    fn only_physical_nics_with_their_own_address_count() {
        let (_dir, root) = tree(&[
            ("/sys/class/net/eth0/address", "6e:22:41:9c:0a:71\n"),
            ("/sys/class/net/eth0/addr_assign_type", "0\n"),
            ("/sys/class/net/eth0/device/vendor", "0x1af4\n"),
            ("/sys/class/net/eth1/address", "02:00:00:00:00:01\n"),
            ("/sys/class/net/eth1/addr_assign_type", "3\n"),
            ("/sys/class/net/eth1/device/vendor", "0x1af4\n"),
            ("/sys/class/net/cali0/address", "ee:ee:ee:ee:ee:ee\n"),
            ("/sys/class/net/cni0/address", "8a:11:fd:30:aa:02\n"),
        ]);
        let macs = read_machine(&root).macs();
        let texts: Vec<String> = macs.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["6e:22:41:9c:0a:71"]);
    }

    #[test]
    fn a_hostile_host_name_is_read_as_text() {
        let (_dir, root) = tree(&[("/proc/sys/kernel/hostname", "evil\u{1b}[31m\nsecond line\n")]);
        assert_eq!(
            read_machine(&root).kernel_hostname,
            Fact::Known("evil\u{1b}[31m".to_owned())
        );
    }

    #[test]
    fn the_static_hostname_is_what_systemd_reads() {
        for (text, name) in [
            ("# managed by puppet\nvm-1\n", Some("vm-1")),
            ("\n  # a\n\n  vm-1  \nvm-2\n", Some("vm-1")),
            ("node-????-????\n", Some("node-????-????")),
            ("# nothing else\n", None),
            ("", None),
        ] {
            let (_dir, root) = tree(&[(STATIC_HOSTNAME, text)]);
            let read = read_machine(&root).static_hostname;
            assert_eq!(read.known().map(String::as_str), name, "{text:?}");
        }
    }

    #[test]
    fn the_platform_name_is_cloud_inits_and_broken_json_is_said() {
        let path = "/run/cloud-init/instance-data.json";
        let (_dir, root) = tree(&[(path, r#"{"v1":{"local_hostname":"vm-1"},"ds":{}}"#)]);
        assert_eq!(
            read_machine(&root).platform_hostname,
            Fact::Known("vm-1".to_owned())
        );
        let (_dir, root) = tree(&[(path, "{")]);
        assert_eq!(
            read_machine(&root).platform_hostname.why().unwrap().kind,
            UnavailableKind::Malformed
        );
    }

    #[test]
    fn without_cloud_init_the_platform_name_is_afterburns() {
        let fcos = "AFTERBURN_KUBEVIRT_HOSTNAME=vm-1\nAFTERBURN_KUBEVIRT_INSTANCE_ID=i\n";
        let flatcar = "COREOS_KUBEVIRT_INSTANCE_ID=\"i\"\nCOREOS_KUBEVIRT_HOSTNAME=\"vm-1\"\n";
        for (path, text) in [
            ("/run/metadata/afterburn", fcos),
            ("/run/metadata/flatcar", flatcar),
        ] {
            let (_dir, root) = tree(&[(path, text)]);
            let name = read_machine(&root).platform_hostname;
            assert_eq!(name, Fact::Known("vm-1".to_owned()), "{path}");
        }
        let both = r#"{"v1":{"local_hostname":"vm-2"}}"#;
        let path = "/run/cloud-init/instance-data.json";
        let (_dir, root) = tree(&[(path, both), ("/run/metadata/afterburn", fcos)]);
        let name = read_machine(&root).platform_hostname;
        assert_eq!(name, Fact::Known("vm-2".to_owned()));
        let (_dir, root) = tree(&[("/run/metadata/afterburn", "AFTERBURN_AWS_HOSTNAME=a\n")]);
        assert_eq!(read_machine(&root).platform_hostname, Fact::Absent);
    }

    #[test]
    fn a_uuid_that_is_none_is_said() {
        let (_dir, root) = tree(&[("/sys/class/dmi/id/product_uuid", "nonsense\n")]);
        assert!(
            read_machine(&root)
                .product_uuid
                .why()
                .unwrap()
                .text
                .contains("nonsense")
        );
    }
}
