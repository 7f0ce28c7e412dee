// SPDX-License-Identifier: Apache-2.0
//! Tests of atomic writes.

use super::*;
use crate::testing::{own_mounts, run};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn tree() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    (dir, root)
}

fn mode(root: &Root, path: &str) -> u32 {
    let metadata = std::fs::symlink_metadata(root.join(path)).unwrap();
    metadata.permissions().mode() & 0o7777
}

const STATUS: &str = "/run/harvester-node-agent/status.json";
const STATE: &str = "/var/lib/harvester-node-agent/state.json";

#[test]
fn our_directories_are_created_with_their_modes_whatever_the_umask() {
    let (_dir, root) = tree();
    write_atomic(&root, STATUS, b"one", 0o666).unwrap();
    write_atomic(&root, STATE, b"two", 0o600).unwrap();
    assert_eq!(mode(&root, RUNTIME_DIRECTORY), 0o755);
    assert_eq!(mode(&root, STATE_DIRECTORY), 0o700);
    assert_eq!(mode(&root, STATUS), 0o666);
    assert_eq!(mode(&root, STATE), 0o600);
    assert_eq!(root.read(STATUS, 10).unwrap(), b"one");
    assert_eq!(root.list(RUNTIME_DIRECTORY).unwrap(), ["status.json"]);
}

#[test]
fn equal_content_is_not_written_again_and_another_mode_is() {
    let (_dir, root) = tree();
    let inode = || std::fs::metadata(root.join(STATUS)).unwrap().ino();
    assert_eq!(
        write_atomic(&root, STATUS, b"one", 0o644).unwrap(),
        WriteOutcome::Written
    );
    let first = inode();
    assert_eq!(
        write_atomic(&root, STATUS, b"one", 0o644).unwrap(),
        WriteOutcome::Unchanged
    );
    assert_eq!(inode(), first);
    for (bytes, mode) in [(b"one" as &[u8], 0o600), (b"on", 0o600), (b"onetwo", 0o600)] {
        assert_eq!(
            write_atomic(&root, STATUS, bytes, mode).unwrap(),
            WriteOutcome::Written
        );
        assert_eq!(root.read(STATUS, 10).unwrap(), bytes);
    }
}

#[test]
fn what_a_killed_process_left_behind_is_replaced() {
    let (_dir, root) = tree();
    write_atomic(&root, STATUS, b"one", 0o644).unwrap();
    let leave = || {
        let half = root.join("/run/harvester-node-agent/.status.json.new");
        std::fs::write(half, "half").unwrap();
    };
    // Whether or not there is something else to write.
    for content in ["two", "two"] {
        leave();
        write_atomic(&root, STATUS, content.as_bytes(), 0o644).unwrap();
        assert_eq!(root.read(STATUS, 10).unwrap(), content.as_bytes());
        assert_eq!(root.list(RUNTIME_DIRECTORY).unwrap(), ["status.json"]);
    }
    leave();
    remove(&root, STATUS).unwrap();
    assert!(root.list(RUNTIME_DIRECTORY).unwrap().is_empty());
}

#[test]
fn a_planted_object_is_refused_and_left_as_it_is() {
    type Plant = fn(&Path, &Path);
    let plants: [(&str, Plant); 5] = [
        ("is a symbolic link", |at, victim| {
            symlink(victim, at).unwrap();
        }),
        ("has another hard link", |at, victim| {
            std::fs::hard_link(victim, at).unwrap();
        }),
        ("is not a regular file", |at, _| {
            nix::unistd::mkfifo(at, Mode::S_IRWXU).unwrap();
        }),
        ("is not a regular file", |at, _| {
            std::fs::create_dir(at).unwrap();
        }),
        ("is not a regular file", |at, _| {
            std::os::unix::net::UnixDatagram::bind(at).unwrap();
        }),
    ];
    for (reason, plant) in plants {
        let (dir, root) = tree();
        write_atomic(&root, STATUS, b"one", 0o644).unwrap();
        std::fs::remove_file(root.join(STATUS)).unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        plant(&root.join(STATUS), &victim);
        let before = std::fs::symlink_metadata(root.join(STATUS)).unwrap().ino();
        let error = write_atomic(&root, STATUS, b"two", 0o644)
            .unwrap_err()
            .to_string();
        assert!(error.contains(reason) && error.contains(STATUS), "{error}");
        let place = Location::open(&root, Path::new(STATUS)).unwrap();
        place.open_in_place(0o644).unwrap_err();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        let after = std::fs::symlink_metadata(root.join(STATUS)).unwrap().ino();
        assert_eq!(after, before);
    }
}

#[test]
fn a_linked_shared_or_foreign_directory_of_ours_is_refused() {
    let (dir, root) = tree();
    std::fs::create_dir_all(root.join("/run")).unwrap();
    std::fs::create_dir(dir.path().join("elsewhere")).unwrap();
    symlink("/elsewhere", root.join(RUNTIME_DIRECTORY)).unwrap();
    let error = write_atomic(&root, STATUS, b"one", 0o644).unwrap_err();
    assert!(error.to_string().contains("is not a directory"), "{error}");
    assert_eq!(root.list("/elsewhere").unwrap().len(), 0);

    std::fs::remove_file(root.join(RUNTIME_DIRECTORY)).unwrap();
    std::fs::create_dir(root.join(RUNTIME_DIRECTORY)).unwrap();
    let shared = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(root.join(RUNTIME_DIRECTORY), shared).unwrap();
    let error = write_atomic(&root, STATUS, b"one", 0o644).unwrap_err();
    assert!(
        error.to_string().contains("is writable by other users"),
        "{error}"
    );

    if !Uid::effective().is_root() {
        harvester_lab::skip(
            "a_linked_shared_or_foreign_directory_of_ours_is_refused",
            "chown needs root",
        );
        return;
    }
    let private = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(root.join(RUNTIME_DIRECTORY), private).unwrap();
    std::os::unix::fs::chown(root.join(RUNTIME_DIRECTORY), Some(65534), None).unwrap();
    let error = write_atomic(&root, STATUS, b"one", 0o644).unwrap_err();
    assert!(
        error.to_string().contains("belongs to another user"),
        "{error}"
    );
    std::os::unix::fs::chown(root.join(RUNTIME_DIRECTORY), Some(0), None).unwrap();
    std::fs::write(root.join(STATUS), "theirs").unwrap();
    std::os::unix::fs::chown(root.join(STATUS), Some(65534), None).unwrap();
    let error = write_atomic(&root, STATUS, b"one", 0o644).unwrap_err();
    assert!(
        error.to_string().contains("belongs to another user"),
        "{error}"
    );
}

#[test]
fn a_link_above_our_directory_stays_inside_the_root() {
    let (dir, root) = tree();
    std::fs::create_dir_all(dir.path().join("data/lib")).unwrap();
    symlink("/data", root.join("/var")).unwrap();
    write_atomic(&root, STATE, b"one", 0o600).unwrap();
    let real = dir.path().join("data/lib/harvester-node-agent/state.json");
    assert_eq!(std::fs::read(real).unwrap(), b"one");
}

#[test]
fn a_directory_that_is_not_ours_is_not_created() {
    let (_dir, root) = tree();
    let metrics = "/var/lib/prometheus/node-exporter/agent.prom";
    let error = write_atomic(&root, metrics, b"one", 0o644).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to open `/var/lib/prometheus/node-exporter`"
    );
    assert!(!root.exists("/var/lib/prometheus"));
    std::fs::create_dir_all(root.join("/var/lib/prometheus/node-exporter")).unwrap();
    assert_eq!(
        write_atomic(&root, metrics, b"one", 0o644).unwrap(),
        WriteOutcome::Written
    );
}

#[test]
fn no_link_that_another_user_can_change_leads_to_a_directory_of_others() {
    let (_dir, root) = tree();
    let directory = "/var/lib/prometheus/node-exporter";
    let file = format!("{directory}/agent.prom");
    std::fs::create_dir_all(root.join("/srv/metrics")).unwrap();
    std::fs::create_dir_all(root.join("/var/lib/prometheus")).unwrap();
    symlink("/srv/metrics", root.join(directory)).unwrap();
    // A link of root is followed, inside the root.
    write_atomic(&root, &file, b"one", 0o644).unwrap();
    assert_eq!(root.read("/srv/metrics/agent.prom", 10).unwrap(), b"one");
    let open = std::fs::Permissions::from_mode(0o777);
    let mut shared = vec![("is writable", open)];
    if Uid::effective().is_root() {
        let closed = std::fs::Permissions::from_mode(0o755);
        shared.push(("of another user", closed));
    } else {
        harvester_lab::skip(
            "no_link_that_another_user_can_change_leads_to_a_directory_of_others",
            "chown needs root",
        );
    }
    for (what, permissions) in shared {
        if what == "of another user" {
            let above = root.join("/var/lib/prometheus");
            std::os::unix::fs::chown(above, Some(65534), None).unwrap();
        }
        std::fs::set_permissions(root.join("/var/lib/prometheus"), permissions).unwrap();
        let error = write_atomic(&root, &file, b"two", 0o644).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("another user can change"), "{what}: {text}");
        assert!(text.contains(&format!("`{directory}`")), "{what}: {text}");
        assert_eq!(root.read("/srv/metrics/agent.prom", 10).unwrap(), b"one");
    }
    // Without a link, such a directory is accepted.
    std::fs::remove_file(root.join(directory)).unwrap();
    std::fs::create_dir(root.join(directory)).unwrap();
    write_atomic(&root, &file, b"two", 0o644).unwrap();
    assert_eq!(root.read(&file, 10).unwrap(), b"two");
}

#[test]
fn a_full_or_read_only_file_system_leaves_the_old_file_whole() {
    if !own_mounts().is_child() {
        return;
    }
    let (dir, root) = tree();
    let target = dir.path().to_str().unwrap();
    run(&[
        "mount",
        "-t",
        "tmpfs",
        "-o",
        "size=64k,mode=0755",
        "none",
        target,
    ]);
    write_atomic(&root, STATE, b"old", 0o600).unwrap();

    let error = write_atomic(&root, STATE, &[b'x'; 200_000], 0o600).unwrap_err();
    assert_eq!(error.to_string(), format!("failed to write `{STATE}`"));
    let WriteError::Io { source, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    assert_eq!(root.read(STATE, 10).unwrap(), b"old");
    assert_eq!(root.list(STATE_DIRECTORY).unwrap(), ["state.json"]);

    std::fs::write(
        dir.path()
            .join("var/lib/harvester-node-agent/.state.json.new"),
        "",
    )
    .unwrap();
    run(&["mount", "-o", "remount,ro", target]);
    assert_eq!(
        write_atomic(&root, STATE, b"old", 0o600).unwrap(),
        WriteOutcome::Unchanged
    );
    let error = write_atomic(&root, STATE, b"new", 0o600).unwrap_err();
    let WriteError::Io { source, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(source.kind(), io::ErrorKind::ReadOnlyFilesystem);
    write_atomic(&root, STATUS, b"new", 0o644).unwrap_err();
    assert_eq!(root.read(STATE, 10).unwrap(), b"old");
    run(&["umount", target]);
}

#[test]
fn a_directory_is_made_for_everybody_to_read_and_what_was_there_keeps_its_mode() {
    let (_dir, root) = tree();
    let drop_ins = "/etc/rancher/rke2/config.yaml.d";
    std::fs::create_dir_all(root.join("/etc/rancher")).unwrap();
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(root.join("/etc/rancher"), private).unwrap();
    make_directory(&root, Path::new(drop_ins)).unwrap();
    make_directory(&root, Path::new(drop_ins)).unwrap();
    let modes = ["/etc/rancher", "/etc/rancher/rke2", drop_ins].map(|path| mode(&root, path));
    assert_eq!(modes, [0o700, 0o755, 0o755]);
}

#[test]
fn only_a_regular_file_of_ours_is_removed() {
    let (_dir, root) = tree();
    let file = "/etc/rancher/90-ours.yaml";
    make_directory(&root, Path::new("/etc/rancher")).unwrap();
    remove(&root, file).unwrap();
    write_atomic(&root, file, b"ours", 0o644).unwrap();
    remove(&root, file).unwrap();
    assert!(root.list("/etc/rancher").unwrap().is_empty());
    symlink("/etc/passwd", root.join(file)).unwrap();
    assert!(matches!(
        remove(&root, file),
        Err(WriteError::Refused { .. })
    ));
}
