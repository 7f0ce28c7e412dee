// SPDX-License-Identifier: Apache-2.0
//! Tests of netlink, with messages of a real kernel, and with the running kernel.

use super::addresses::list_addresses;
use super::inventory::read_nics;
use super::message::{Link, Message, NOTIFY_PEERS, RTM_NEWLINK, messages};
use super::socket::read_link;
use crate::facts::nic::{Announce, Mac, Nic};
use crate::sys::root::Root;
use crate::testing::{own_namespaces, run};

/// The message of Linux 6.18 about a virtio NIC, with its address replaced and its statistics set to zero.
pub(crate) const VIRTIO: &[u8] = include_bytes!("captured/virtio.bin");

/// An event of Linux 6.18: the features of a veth changed (`IFLA_EVENT_FEATURES`).
pub(crate) const FEATURES: &[u8] = include_bytes!("captured/features.bin");

/// Returns a message with one more attribute.
pub(crate) fn with(message: &[u8], kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    bytes.extend((value.len() as u16 + 4).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// Returns a message of this type about a link, without attributes.
pub(crate) fn bare(kind: u16) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    bytes[..4].copy_from_slice(&32_u32.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes
}

fn only(datagram: &[u8]) -> Link {
    let all: Vec<Message> = messages(datagram).map(Result::unwrap).collect();
    match &all[..] {
        [Message::Link(link)] => link.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_real_kernel_reports_of_its_links_is_understood() {
    let nic = Link {
        name: "eth0".to_owned(),
        event: None,
        address: Mac::parse("6e:22:41:9c:0a:71"),
        kind: None,
        bus: Some("virtio".to_owned()),
    };
    assert_eq!(only(VIRTIO), nic);
    let announced = only(&with(VIRTIO, 44, &NOTIFY_PEERS.to_ne_bytes()));
    let event = Some(NOTIFY_PEERS);
    assert_eq!(announced, Link { event, ..nic });
    let veth = only(FEATURES);
    assert_eq!(
        (veth.event, veth.kind.as_deref(), veth.bus),
        (Some(2), Some("veth"), None)
    );
}

#[test]
fn several_messages_of_one_datagram_are_distinguished() {
    let datagram = [VIRTIO, &bare(17), FEATURES].concat();
    let names: Vec<String> = messages(&datagram)
        .map(|message| match message.unwrap() {
            Message::Link(link) => link.name,
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["eth0", "Other(17)", "v0"]);
}

#[test]
fn a_message_that_is_cut_off_is_refused_wherever_it_is_cut() {
    for length in 1..VIRTIO.len() {
        let last = messages(&VIRTIO[..length]).last();
        last.unwrap().unwrap_err();
    }
}

#[test]
fn no_byte_can_break_the_reader() {
    for index in 0..VIRTIO.len() {
        for value in [0, 1, 3, 4, 0x7f, 0x80, 0xff] {
            let mut bytes = VIRTIO.to_vec();
            bytes[index] = value;
            // Parsing ends and returns at least one result.
            assert!(messages(&bytes).count() >= 1, "byte {index} = {value}");
        }
    }
    let short = with(&bare(RTM_NEWLINK), 44, &[4]);
    assert_eq!(only(&short).event, None);
}

#[test]
fn a_link_is_read_by_its_name_and_none_that_cni_makes_is_a_nic() {
    if own_namespaces(&["--map-root-user", "--net"]).is_child() {
        for index in 0..200 {
            let (name, peer) = (format!("cali{index}"), format!("peer{index}"));
            run(&[
                "ip", "link", "add", &name, "type", "veth", "peer", "name", &peer,
            ]);
        }
        let read = |name: &str| read_link(name.as_ref());
        let link = read("cali199").unwrap();
        assert_eq!(
            (&link.name[..], link.kind.as_deref()),
            ("cali199", Some("veth"))
        );
        assert_eq!(read("lo").unwrap().kind, None);
        for name in ["cali200", "", "a-name-that-no-link-can-have"] {
            let error = read(name).unwrap_err();
            assert!(error.raw_os_error().is_some(), "{name}: {error}");
        }
        assert_eq!(read_nics(&Root::new("/")).unwrap(), []);
    }
}

#[test]
fn netlink_and_sysfs_report_the_same_nics() {
    let by_name = |root: &str| {
        let mut nics = read_nics(&Root::new(root)).unwrap();
        nics.sort_by(|a, b| a.name.cmp(&b.name));
        nics
    };
    // The same files through another path: it does not count as the running system, so netlink is not used.
    assert!(!Root::new("/proc/self/root").is_live());
    assert_eq!(by_name("/"), by_name("/proc/self/root"));
}

#[test]
fn a_tree_reports_the_same_nics_as_sysfs() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let link = |path: &str, target: &str| {
        std::os::unix::fs::symlink(target, root.join(path)).unwrap();
    };
    let features: String = (0..64)
        .map(|bit| {
            if [16, 17, 21].contains(&bit) {
                '1'
            } else {
                '0'
            }
        })
        .collect();
    for (name, bus, driver) in [("eth0", "virtio", "virtio_net"), ("eth1", "pci", "e1000")] {
        let nic = format!("/sys/class/net/{name}");
        write(&format!("{nic}/address"), "6e:22:41:9c:0a:71\n");
        write(&format!("{nic}/device/features"), &features);
        link(
            &format!("{nic}/device/subsystem"),
            &format!("../../../bus/{bus}"),
        );
        link(
            &format!("{nic}/device/driver"),
            &format!("../../../bus/{bus}/drivers/{driver}"),
        );
    }
    write("/sys/class/net/cni0/address", "8a:11:fd:30:aa:02\n");
    let nic = |name: &str, driver: &str, announce| Nic {
        name: name.to_owned(),
        address: Mac::parse("6e:22:41:9c:0a:71"),
        driver: Some(driver.to_owned()),
        announce,
    };
    assert_eq!(
        read_nics(&root).unwrap(),
        [
            nic("eth0", "virtio_net", Announce::Negotiated),
            nic("eth1", "e1000", Announce::NotVirtio),
        ]
    );
}

#[test]
fn addresses_are_listed_by_interface_without_those_that_only_this_machine_knows() {
    if own_namespaces(&["--map-root-user", "--net"]).is_child() {
        run(&["ip", "link", "set", "lo", "up"]);
        run(&[
            "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1",
        ]);
        run(&["ip", "address", "add", "172.19.106.159/24", "dev", "v0"]);
        run(&["ip", "address", "add", "169.254.7.7/16", "dev", "v0"]);
        run(&["ip", "address", "add", "fd00::7/64", "dev", "v0", "nodad"]);
        run(&["ip", "link", "set", "v0", "up"]);
        run(&["ip", "link", "set", "v1", "up"]);
        let expected = ["172.19.106.159", "fd00::7"].map(|text| text.parse().unwrap());
        let found = list_addresses().unwrap();
        assert_eq!(found, [("v0".to_owned(), expected.to_vec())].into());
    }
}
