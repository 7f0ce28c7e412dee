// SPDX-License-Identifier: Apache-2.0
use std::time::Duration;

use harvester_lab::downward_metrics::{
    Behaviour, DownwardMetrics, disk_image, document, offer_disk,
};
use harvester_lab::guest::GuestTree;

use super::*;
use crate::facts::host_metrics::Via;
use crate::testing::{NO_ANSWER, NOT_SERVED, TIMEOUTS};

fn guest() -> (tempfile::TempDir, GuestTree, Root) {
    let dir = tempfile::tempdir().unwrap();
    let tree = GuestTree::new(dir.path());
    let root = Root::new(dir.path());
    (dir, tree, root)
}

async fn seen(root: &Root, timeouts: ReadTimeouts) -> Fact<HostMetrics> {
    read_within(root, UtcDateTime::now(), timeouts).await
}

#[tokio::test]
async fn the_port_is_asked_before_the_disk_and_the_disk_helps_out() {
    let (_dir, tree, root) = guest();
    assert_eq!(seen(&root, TIMEOUTS).await, Fact::Absent);
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
    let found = seen(&root, TIMEOUTS).await;
    assert_eq!(found.known().unwrap().via, Via::Disk);
    let wall = UtcDateTime::now() + std::time::Duration::from_secs(90);
    let old = read_within(&root, wall, TIMEOUTS).await;
    assert!(old.why().unwrap().text.contains("s old"), "{old:?}");

    let device = DownwardMetrics::offer_paced(&tree, Behaviour::serve("hv-port"), Duration::ZERO);
    let channel = "offered as channel `org.github.vhostmd.1`";
    assert_eq!(probe(&root), (true, channel.to_owned()));
    let found = seen(&root, TIMEOUTS).await;
    assert_eq!(found.known().unwrap().host.as_str(), "hv-port");

    device.behave(Behaviour::Unserved);
    let found = seen(&root, NOT_SERVED).await;
    assert_eq!(found.known().unwrap().host.as_str(), "hv-disk");
    // Both fail: the error of the port is reported.
    offer_disk(&tree, "vdb", &disk_image(b"nonsense"));
    let found = seen(&root, NOT_SERVED).await;
    let why = &found.why().unwrap().text;
    assert!(why.contains("nothing on the host reads"), "{why}");
    drop(device);
    let why = seen(&root, TIMEOUTS).await;
    assert_eq!(
        why.why().unwrap().kind,
        UnavailableKind::Malformed,
        "{why:?}"
    );
}

#[tokio::test]
async fn each_failure_has_its_kind_and_one_line() {
    let serve = |host: &str, clock| Behaviour::Serve {
        host: host.to_owned(),
        clock,
    };
    let cut = Behaviour::Say(b"<metrics>\n\n".to_vec());
    use UnavailableKind::{Malformed, Refused, Unreachable};
    for (behaviour, timeouts, kind) in [
        (Behaviour::Unserved, NOT_SERVED, Unreachable),
        (Behaviour::Never, NO_ANSWER, Unreachable),
        (serve("hv-a", -60), TIMEOUTS, Unreachable),
        (Behaviour::Empty, TIMEOUTS, Unreachable),
        (Behaviour::Endless, TIMEOUTS, Refused),
        (Behaviour::Invalid, TIMEOUTS, Refused),
        (Behaviour::Dtd, TIMEOUTS, Refused),
        (cut, TIMEOUTS, Malformed),
        (serve("HV A", 0), TIMEOUTS, Malformed),
    ] {
        let (_dir, tree, root) = guest();
        let _device = DownwardMetrics::offer_paced(&tree, behaviour.clone(), Duration::ZERO);
        let seen = seen(&root, timeouts).await;
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
