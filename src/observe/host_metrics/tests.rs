// SPDX-License-Identifier: Apache-2.0
use std::time::Duration;

use harvester_lab::downward_metrics::{
    Behaviour, DownwardMetrics, disk_image, document, offer_disk,
};
use harvester_lab::guest::GuestTree;

use super::*;
use crate::facts::host_metrics::Via;

const TIMEOUTS: ReadTimeouts = ReadTimeouts {
    send: Duration::from_millis(300),
    receive: Duration::from_millis(800),
    again: Duration::from_millis(100),
};

fn guest() -> (tempfile::TempDir, GuestTree, Root) {
    let dir = tempfile::tempdir().unwrap();
    let tree = GuestTree::new(dir.path());
    let root = Root::new(dir.path());
    (dir, tree, root)
}

async fn seen(root: &Root) -> Fact<HostMetrics> {
    read_within(root, UtcDateTime::now(), TIMEOUTS).await
}

#[tokio::test]
async fn the_port_is_asked_before_the_disk_and_the_disk_helps_out() {
    let (_dir, tree, root) = guest();
    assert_eq!(seen(&root).await, Fact::Absent);
    let (offered, text) = probe(&root);
    assert!(
        !offered && text.contains("no downwardMetrics device"),
        "{text}"
    );

    offer_disk(
        &tree,
        "vdb",
        &disk_image(document("hv-disk", UtcDateTime::now().unix_timestamp()).as_bytes()),
    );
    assert_eq!(
        probe(&root),
        (true, "offered as disk `/dev/vdb`".to_owned())
    );
    assert_eq!(seen(&root).await.known().unwrap().via, Via::Disk);
    let wall = UtcDateTime::now() + std::time::Duration::from_secs(90);
    let old = read_within(&root, wall, TIMEOUTS).await;
    assert!(old.why().unwrap().text.contains("s old"), "{old:?}");

    let device = DownwardMetrics::offer_paced(&tree, Behaviour::serve("hv-port"), Duration::ZERO);
    let channel = "offered as channel `org.github.vhostmd.1`";
    assert_eq!(probe(&root), (true, channel.to_owned()));
    assert_eq!(seen(&root).await.known().unwrap().host.as_str(), "hv-port");

    device.behave(Behaviour::Unserved);
    assert_eq!(seen(&root).await.known().unwrap().host.as_str(), "hv-disk");
    // Both fail: the error of the port is reported.
    offer_disk(&tree, "vdb", &disk_image(b"nonsense"));
    assert!(
        seen(&root)
            .await
            .why()
            .unwrap()
            .text
            .contains("nothing on the host reads")
    );
    drop(device);
    let why = seen(&root).await;
    assert_eq!(
        why.why().unwrap().kind,
        UnavailableKind::Malformed,
        "{why:?}"
    );
}

#[tokio::test]
async fn each_failure_has_its_kind_and_one_line() {
    let host = || "hv-a".to_owned();
    for (behaviour, kind) in [
        (Behaviour::Unserved, UnavailableKind::Unreachable),
        (Behaviour::Never, UnavailableKind::Unreachable),
        (
            Behaviour::Serve {
                host: host(),
                clock: -60,
            },
            UnavailableKind::Unreachable,
        ),
        (Behaviour::Empty, UnavailableKind::Unreachable),
        (Behaviour::Endless, UnavailableKind::Refused),
        (Behaviour::Invalid, UnavailableKind::Refused),
        (Behaviour::Dtd, UnavailableKind::Refused),
        (
            Behaviour::Say(b"<metrics>\n\n".to_vec()),
            UnavailableKind::Malformed,
        ),
        (
            Behaviour::Serve {
                host: "HV A".to_owned(),
                clock: 0,
            },
            UnavailableKind::Malformed,
        ),
    ] {
        let (_dir, tree, root) = guest();
        let _device = DownwardMetrics::offer_paced(&tree, behaviour.clone(), Duration::ZERO);
        let seen = seen(&root).await;
        let why = seen.why().unwrap();
        assert_eq!(why.kind, kind, "{behaviour:?}: {}", why.text);
        assert!(!why.text.contains('\n') && why.text.contains("org.github.vhostmd.1"));
    }
}

#[test]
fn refused_access_is_distinguished_from_a_host_that_is_away() {
    let port = AskError::Port(PortError::Denied("/dev/vport1p1".into()));
    assert_eq!(ask_kind(&port), UnavailableKind::Forbidden);
    assert_eq!(ask_kind(&AskError::Busy), UnavailableKind::Unreachable);
    assert_eq!(
        disk_kind(&DiskError::Denied("/dev/vdb".into())),
        UnavailableKind::Forbidden
    );
}
