// SPDX-License-Identifier: Apache-2.0
//! A system bus of one guest: a real dbus-daemon with its socket in the guest's tree, which can be killed, restarted and hung,
//! and stand-ins for the two services on it.

mod hostnamed;
mod systemd;

use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;

pub use hostnamed::Hostnamed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
pub use systemd::{Systemd, TransientUnit, Unit};
use tokio::process::{Child, Command};
use zbus::export::futures_core::Stream;
use zbus::{Connection, Message, MessageStream};

use crate::guest::GuestTree;
use crate::world::{SOON, eventually};

/// Where the agent looks for it.
const SOCKET: &str = "/run/dbus/system_bus_socket";

/// The daemon's configuration, outside the tree's usual files.
const CONFIGURATION: &str = "/run/dbus/system.conf";

/// A running dbus-daemon. Dropping it kills it.
#[derive(Debug)]
pub struct Bus {
    socket: PathBuf,
    configuration: PathBuf,
    daemon: Child,
}

impl Bus {
    /// Starts a daemon with its socket where a machine's system bus has it, and waits until it listens.
    ///
    /// # Panics
    /// When dbus-daemon is not installed or does not start.
    pub async fn start(tree: &GuestTree) -> Self {
        let socket = tree.path(SOCKET);
        // As the shipped policy: anybody may send signals to anybody. Names and calls are free as well.
        let policy = format!(
            "<busconfig><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\"><allow user=\"*\"/><allow own=\"*\"/><allow send_type=\"signal\"/>\
             <allow send_destination=\"*\"/><allow receive_sender=\"*\"/></policy></busconfig>",
            socket.display()
        );
        tree.write(CONFIGURATION, policy);
        let configuration = tree.path(CONFIGURATION);
        let daemon = daemon(&configuration);
        let bus = Self {
            socket,
            configuration,
            daemon,
        };
        bus.listens().await;
        bus
    }

    /// Kills the daemon as a crash does: connections end, the socket's file stays.
    pub async fn kill(&mut self) {
        self.daemon.kill().await.expect("the daemon can be killed");
    }

    /// Kills it and starts another one at the same place.
    pub async fn restart(&mut self) {
        self.kill().await;
        // As systemd's dbus.socket and the daemon itself do.
        let _ = std::fs::remove_file(&self.socket);
        self.daemon = daemon(&self.configuration);
        self.listens().await;
    }

    /// Stops the daemon without ending it: it takes connections and answers nothing.
    pub fn hang(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// A client of its own.
    ///
    /// # Panics
    /// When the daemon does not take it.
    pub async fn connect(&self) -> Connection {
        let address = format!("unix:path={}", self.socket.display());
        zbus::connection::Builder::address(address.as_str())
            .build()
            .await
            .expect("the daemon takes a client")
    }

    fn signal(&self, signal: Signal) {
        let id = self.daemon.id().expect("the daemon runs");
        let id = i32::try_from(id).expect("process ids are small");
        kill(Pid::from_raw(id), signal).expect("the daemon runs");
    }

    async fn listens(&self) {
        let connected = async || tokio::net::UnixStream::connect(&self.socket).await.is_ok();
        eventually(SOON, "dbus-daemon listens", connected).await;
    }
}

fn daemon(configuration: &std::path::Path) -> Child {
    let config = format!("--config-file={}", configuration.display());
    Command::new("dbus-daemon")
        .args([config.as_str(), "--nofork", "--nopidfile", "--nosyslog"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // Where root may not raise its limits it says so at each start, and goes on.
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("dbus-daemon is installed")
}

/// The next message of a service's connection; `None` when the bus has gone.
async fn next(messages: &mut MessageStream) -> Option<Message> {
    std::future::poll_fn(|context| Pin::new(&mut *messages).poll_next(context))
        .await?
        .ok()
}
