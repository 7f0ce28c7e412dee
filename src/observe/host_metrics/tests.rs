// SPDX-License-Identifier: Apache-2.0
use std::time::Duration;

use harvester_lab::downward_metrics::{Behaviour, DownwardMetrics};
use harvester_lab::guest::GuestTree;

use super::*;
use crate::facts::Unavailable;
use crate::facts::UnavailableKind;
use crate::testing::{NO_ANSWER, NOT_SERVED, TIMEOUTS};
use crate::wire::virtio::downward_metrics::ReadTimeouts;
use crate::wire::virtio::port::PortError;

fn guest() -> (tempfile::TempDir, GuestTree, Root) {
    let dir = tempfile::tempdir().unwrap();
    let tree = GuestTree::new(dir.path());
    let root = Root::new(dir.path());
    (dir, tree, root)
}

async fn seen(root: &Root, timeouts: ReadTimeouts) -> Fact<HostMetrics> {
    ask(root, UtcDateTime::now().unix_timestamp(), timeouts).await
}

#[tokio::test]
async fn the_port_is_asked_where_the_vm_has_one() {
    let (_dir, tree, root) = guest();
    assert_eq!(seen(&root, TIMEOUTS).await, Fact::Absent);
    let (offered, text) = probe(&root);
    assert!(
        !offered && text.contains("no downwardMetrics device"),
        "{text}"
    );

    let device = DownwardMetrics::offer_paced(&tree, Behaviour::serve("hv-port"), Duration::ZERO);
    let channel = "offered as channel `org.github.vhostmd.1`";
    assert_eq!(probe(&root), (true, channel.to_owned()));
    let found = seen(&root, TIMEOUTS).await;
    assert_eq!(found.known().unwrap().host.as_str(), "hv-port");
    drop(device);
    assert_eq!(seen(&root, TIMEOUTS).await, Fact::Absent);
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
    let denied = PortError::Io(std::io::ErrorKind::PermissionDenied.into());
    for (error, expected) in [
        (denied, UnavailableKind::Forbidden),
        (PortError::Busy, UnavailableKind::Unreachable),
        (PortError::Absent, UnavailableKind::Unreachable),
    ] {
        assert_eq!(Unavailable::from(error).kind, expected);
    }
}
