// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::sys::atomic_file::STATE_DIRECTORY;
use crate::testing::{own_process, this_test};
use nix::sys::stat::Mode;
use std::io::BufRead;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// `nobody`.
const STRANGER: u32 = 65534;

fn tree() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    (dir, root)
}

fn running(pid: u32) -> Presence {
    Presence::Running(Holder { pid: Some(pid) })
}

fn mode(root: &Root, path: &str) -> u32 {
    std::fs::metadata(root.join(path)).unwrap().mode() & 0o7777
}

#[test]
fn a_second_agent_learns_who_the_first_is() {
    if !own_process().is_child() {
        return;
    }
    let (_dir, root) = tree();
    assert_eq!(presence(&root, None), Presence::Absent);
    let lock = acquire(&root).unwrap();
    let me = std::process::id();
    assert_eq!(presence(&root, None), running(me));
    let Err(LockError::Held { holder }) = acquire(&root) else {
        panic!("two locks")
    };
    assert_eq!(holder, Holder { pid: Some(me) });
    drop(lock);
    assert_eq!(presence(&root, None), Presence::Absent);
    acquire(&root).unwrap();
}

#[test]
fn asking_who_holds_the_lock_never_keeps_an_agent_from_starting() {
    if !own_process().is_child() {
        return;
    }
    let (_dir, root) = tree();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                presence(&root, None);
            }
        });
        // Without the time limit for a disk, which a busy machine exceeds.
        let refused = (0..2000).filter(|_| lock(&root).is_err()).count();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(refused, 0);
    });
}

#[test]
fn another_user_can_neither_open_the_lock_nor_keep_an_agent_from_starting() {
    if !own_process().is_child() {
        return;
    }
    // The umasks of a root shell and of the unit.
    for umask in [0o022, 0o077] {
        let (dir, root) = tree();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        nix::sys::stat::umask(Mode::from_bits_truncate(umask));
        // A directory and a lock file with wrong, permissive modes.
        let directory = root.join(STATE_DIRECTORY);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(root.join(LOCK_FILE), "").unwrap();
        drop(acquire(&root).unwrap());
        assert_eq!(mode(&root, STATE_DIRECTORY), 0o700);
        assert_eq!(mode(&root, LOCK_FILE), 0o600);
        if !nix::unistd::Uid::effective().is_root() {
            harvester_lab::skip(&this_test(), "only root can be another user");
            return;
        }
        let stranger = Command::new("sh")
            .args([
                "-c",
                "exec 3<\"$0\"",
                root.join(LOCK_FILE).to_str().unwrap(),
            ])
            .uid(STRANGER)
            .gid(STRANGER)
            .output()
            .unwrap();
        assert!(!stranger.status.success());
        let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
        assert!(said.contains("ermission denied"), "{said}");
        acquire(&root).unwrap();
    }
}

#[test]
fn the_lock_outlives_the_runtime_directory() {
    if !own_process().is_child() {
        return;
    }
    let (_dir, root) = tree();
    std::fs::create_dir_all(root.join(RUNTIME_DIRECTORY)).unwrap();
    let _lock = acquire(&root).unwrap();
    // As systemd does when the service stops while `once` runs.
    std::fs::remove_dir_all(root.join(RUNTIME_DIRECTORY)).unwrap();
    assert!(matches!(acquire(&root), Err(LockError::Held { .. })));
    assert_eq!(presence(&root, None), running(std::process::id()));
}

#[test]
fn a_process_number_that_is_used_again_is_not_the_agent() {
    let (_dir, root) = tree();
    let own = Instance::own().unwrap();
    assert_eq!(presence(&root, Some(&own)), running(own.pid));
    let later = Instance {
        start_ticks: own.start_ticks + 1,
        ..own.clone()
    };
    assert_eq!(presence(&root, Some(&later)), Presence::Absent);
    let boot = Instance {
        boot_id: "8bd1f1d6-5ff1-4f2b-9f5e-0d3c7e2f6a10".to_owned(),
        ..own.clone()
    };
    assert_eq!(presence(&root, Some(&boot)), Presence::Absent);
    let gone = Instance {
        pid: u32::MAX,
        ..own
    };
    assert_eq!(presence(&root, Some(&gone)), Presence::Absent);
}

#[test]
fn a_process_that_has_ended_does_not_run_whatever_its_name() {
    let line = |state: &str| {
        format!(
            "812 (a) b) {state} 1 812 812 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1000 7 8 9"
        )
    };
    assert_eq!(parse_stat(&line("S")), Some(4242));
    assert_eq!(parse_stat(&line("Z")), None);
    assert_eq!(parse_stat("812 (harvester-node-) S 1 2"), None);
    assert_eq!(parse_stat(""), None);
}

#[test]
fn a_lock_file_without_a_number_still_names_a_holder() {
    let (_dir, root) = tree();
    let _lock = acquire(&root).unwrap();
    std::fs::write(root.join(LOCK_FILE), "rubbish\x1b[31m").unwrap();
    let unnamed = Presence::Running(Holder { pid: None });
    assert_eq!(presence(&root, None), unnamed);
    assert_eq!(
        acquire(&root).unwrap_err().to_string(),
        format!("`{LOCK_FILE}` is locked by another process")
    );
}

#[test]
fn a_planted_link_is_not_followed() {
    let (dir, root) = tree();
    drop(acquire(&root).unwrap());
    std::fs::remove_file(root.join(LOCK_FILE)).unwrap();
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, root.join(LOCK_FILE)).unwrap();
    assert!(matches!(acquire(&root), Err(LockError::Unusable(_))));
    assert_eq!(presence(&root, None), Presence::Absent);
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn the_lock_of_a_killed_process_is_free() {
    const HOLDER: &str = "HARVESTER_NODE_AGENT_TEST_LOCK_ROOT";
    if let Some(dir) = std::env::var_os(HOLDER) {
        let _lock = acquire(&Root::new(dir)).unwrap();
        println!("\nlocked");
        let _ = io::stdin().read_line(&mut String::new());
        return;
    }
    let (dir, root) = tree();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "sys::lock::tests::the_lock_of_a_killed_process_is_free",
            "--nocapture",
        ])
        .env(HOLDER, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = io::BufReader::new(child.stdout.take().unwrap());
    let locked = output.lines().any(|line| line.unwrap() == "locked");
    assert!(locked, "the child ended without a lock");
    assert_eq!(presence(&root, None), running(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(presence(&root, None), Presence::Absent);
    acquire(&root).unwrap();
}
