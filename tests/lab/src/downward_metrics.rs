// SPDX-License-Identifier: Apache-2.0
//! The host's end of KubeVirt's downward metrics: virt-handler behind a virtio-serial port.
//!
//! A pseudo-terminal plays the port. It is not one: a second opener is let in, and a hang-up is final. What virt-handler does
//! on it is real (`pkg/downwardmetrics/virtio-serial/server.go`): the request in two lines, one answer for each request, and
//! a pause before the next request is read.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::termios::{FlowArg, tcflow};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::guest::GuestTree;
use crate::virtio_port::terminal;

/// The name of the port.
pub const PORT: &str = "org.github.vhostmd.1";

/// virt-handler takes one request in this time.
pub const PACE: Duration = Duration::from_secs(1);

/// What virt-handler says when it cannot collect anything.
pub const NOT_AVAILABLE: &str =
    "<metrics><!-- host metrics not available --><!-- VM metrics not available --></metrics>";

/// Bytes of an answer without end.
const ENDLESS: usize = 1 << 20;

/// How the host's end behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// As virt-handler does.
    Serve {
        /// The host's name.
        host: String,
        /// How far the host's clock is ahead of the real one, in seconds.
        clock: i64,
    },
    /// As `Serve`, after an answer that an earlier asker left unread in QEMU's socket.
    Stale {
        /// The host's name.
        host: String,
        /// The name in the old answer.
        old_host: String,
        /// The age of the old answer, in seconds.
        age: i64,
    },
    /// As `Serve`, so much later.
    Slow {
        /// The host's name.
        host: String,
        /// From the request to the answer.
        delay: Duration,
    },
    /// As `Serve`, in pieces.
    Split {
        /// The host's name.
        host: String,
        /// Bytes of each piece.
        piece: usize,
    },
    /// Every request is refused.
    Invalid,
    /// There is nothing to tell now.
    Empty,
    /// A megabyte in which no answer ends.
    Endless,
    /// Entities that grow without end.
    EntityBomb,
    /// A document type that would lead to a file.
    Dtd,
    /// Takes requests and says nothing.
    Never,
    /// No process holds the other end: no request is taken.
    Unserved,
    /// These bytes, whatever they are.
    Say(Vec<u8>),
}

impl Behaviour {
    /// virt-handler on the host with this name, whose clock is right.
    #[must_use]
    pub fn serve(host: &str) -> Self {
        Self::Serve {
            host: host.to_owned(),
            clock: 0,
        }
    }

    fn host_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Serve { host, .. }
            | Self::Stale { host, .. }
            | Self::Slow { host, .. }
            | Self::Split { host, .. } => Some(host),
            _ => None,
        }
    }

    /// The answer to the request with this number, the first being 1.
    fn answer(&self, request: usize) -> Vec<u8> {
        let now = time::UtcDateTime::now().unix_timestamp();
        let message = |text: &str| format!("{text}\n\n").into_bytes();
        let bomb = "<!DOCTYPE metrics [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>\
                    <metrics><metric context=\"host\"><name>HostName</name><value>&b;</value></metric></metrics>";
        let outside = "<!DOCTYPE metrics SYSTEM \"file:///etc/passwd\"><metrics></metrics>";
        match self {
            Self::Serve { host, clock } => message(&document(host, now + clock)),
            Self::Stale {
                host,
                old_host,
                age,
            } => {
                let own = message(&document(host, now));
                if request == 1 {
                    [message(&document(old_host, now - age)), own].concat()
                } else {
                    own
                }
            }
            Self::Slow { host, .. } | Self::Split { host, .. } => message(&document(host, now)),
            Self::Invalid => message("INVALID REQUEST"),
            Self::Empty => message(NOT_AVAILABLE),
            Self::Endless => vec![b'x'; ENDLESS],
            Self::EntityBomb => message(bomb),
            Self::Dtd => message(outside),
            Self::Never | Self::Unserved => Vec::new(),
            Self::Say(bytes) => bytes.clone(),
        }
    }
}

/// The device. Dropping it takes it away.
#[derive(Debug)]
pub struct DownwardMetrics {
    tree: GuestTree,
    /// Held, so that a guest program that closes its end does not hang up ours.
    guest: File,
    behaviour: Arc<Mutex<Behaviour>>,
    requests: watch::Receiver<usize>,
    server: JoinHandle<()>,
}

impl DownwardMetrics {
    /// Gives the guest a port with this behaviour behind it, at virt-handler's pace.
    #[must_use]
    pub fn offer(tree: &GuestTree, behaviour: Behaviour) -> Self {
        Self::offer_paced(tree, behaviour, PACE)
    }

    /// The same, with this time between two requests.
    ///
    /// # Panics
    ///
    /// When the kernel has no pseudo-terminal for us.
    #[must_use]
    pub fn offer_paced(tree: &GuestTree, behaviour: Behaviour, pace: Duration) -> Self {
        let (host, guest, guest_path) = terminal().expect("the kernel has pseudo-terminals");
        tree.flip_link(&link(), &guest_path);
        let behaviour = Arc::new(Mutex::new(behaviour));
        let (counter, requests) = watch::channel(0);
        let server = Server {
            reader: pipe::Receiver::from_owned_fd_unchecked(
                host.try_clone().expect("descriptors are left"),
            )
            .expect("a terminal can be waited for"),
            writer: pipe::Sender::from_owned_fd_unchecked(host)
                .expect("a terminal can be waited for"),
            behaviour: behaviour.clone(),
            counter,
            pace,
        };
        let device = Self {
            tree: tree.clone(),
            guest,
            behaviour,
            requests,
            server: tokio::spawn(server.run()),
        };
        device.flow();
        device
    }

    /// Another host serves from now on, as after a migration.
    pub fn set_host(&self, name: &str) {
        let mut behaviour = self
            .behaviour
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = behaviour.host_mut() {
            name.clone_into(host);
        }
    }

    /// Behaves otherwise from now on.
    pub fn behave(&self, other: Behaviour) {
        *self
            .behaviour
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = other;
        self.flow();
    }

    /// A stopped terminal takes no byte from the guest, as a port whose other end no process holds.
    fn flow(&self) {
        let behaviour = self
            .behaviour
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let action = match *behaviour {
            Behaviour::Unserved => FlowArg::TCOOFF,
            _ => FlowArg::TCOON,
        };
        tcflow(&self.guest, action).expect("the terminal is ours");
    }

    /// How many requests were taken.
    #[must_use]
    pub fn requests(&self) -> usize {
        *self.requests.borrow()
    }

    /// Waits until so many requests were taken.
    ///
    /// # Panics
    ///
    /// When the server has ended.
    pub async fn asked(&self, times: usize) {
        let mut requests = self.requests.clone();
        requests
            .wait_for(|taken| *taken >= times)
            .await
            .expect("the server runs");
    }
}

impl Drop for DownwardMetrics {
    fn drop(&mut self) {
        self.tree.remove(&link());
        self.server.abort();
    }
}

/// virt-handler on the host with this name, at the host's end of a real virtual machine's port. It ends with the stream.
pub fn attend(port: UnixStream, host: &str) {
    let (reader, writer) = port.into_split();
    let server = Server {
        reader,
        writer,
        behaviour: Arc::new(Mutex::new(Behaviour::serve(host))),
        counter: watch::channel(0).0,
        pace: PACE,
    };
    tokio::spawn(server.run());
}

fn link() -> String {
    format!("/dev/virtio-ports/{PORT}")
}

struct Server<R, W> {
    reader: R,
    writer: W,
    behaviour: Arc<Mutex<Behaviour>>,
    counter: watch::Sender<usize>,
    pace: Duration,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Server<R, W> {
    fn behaviour(&self) -> Behaviour {
        self.behaviour
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn run(mut self) {
        let mut next = tokio::time::Instant::now();
        loop {
            tokio::time::sleep_until(next).await;
            let Some(request) = self.request().await else {
                return;
            };
            next = tokio::time::Instant::now() + self.pace;
            let behaviour = self.behaviour();
            self.counter.send_modify(|count| *count += 1);
            let answer = if is_valid(&request) {
                behaviour.answer(*self.counter.borrow())
            } else {
                Behaviour::Invalid.answer(0)
            };
            if let Behaviour::Slow { delay, .. } = behaviour {
                tokio::time::sleep(delay).await;
            }
            let piece = match behaviour {
                Behaviour::Split { piece, .. } => piece.max(1),
                _ => ENDLESS,
            };
            for piece in answer.chunks(piece) {
                if self.writer.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Two lines, as virt-handler reads them; `None` when the guest is gone.
    async fn request(&mut self) -> Option<String> {
        let mut request = Vec::new();
        while request.iter().filter(|byte| **byte == b'\n').count() < 2 {
            request.push(self.reader.read_u8().await.ok()?);
        }
        String::from_utf8(request).ok().or(Some(String::new()))
    }
}

fn is_valid(request: &str) -> bool {
    let mut lines = request.lines();
    let first = lines.next().unwrap_or_default();
    let path = first.strip_prefix("GET ").unwrap_or_default();
    path.split('?').next() == Some("/metrics/XML") && lines.next() == Some("")
}

/// KubeVirt's document, with all of its metrics in its order.
#[must_use]
pub fn document(host: &str, time: i64) -> String {
    let time = time.to_string();
    let metrics = [
        ("string", "host", "", "HostName", host),
        ("string", "host", "", "HostSystemInfo", "linux"),
        ("string", "host", "", "VirtualizationVendor", "kubevirt.io"),
        ("string", "host", "", "VirtProductInfo", "QEMU 9.2.0"),
        ("real64", "vm", "s", "TotalCPUTime", "12.345678"),
        ("int64", "vm", "", "ResourceProcessorLimit", "4"),
        (
            "uint64",
            "vm",
            "KiB",
            "PhysicalMemoryAllocatedToVirtualSystem",
            "8388608",
        ),
        ("uint64", "vm", "KiB", "ResourceMemoryLimit", "8388608"),
        ("int64", "host", "", "NumberOfPhysicalCPUs", "32"),
        ("real64", "host", "s", "TotalCPUTime", "905301.270000"),
        ("uint64", "host", "KiB", "FreePhysicalMemory", "61203456"),
        ("uint64", "host", "KiB", "FreeVirtualMemory", "61203456"),
        (
            "uint64",
            "host",
            "KiB",
            "MemoryAllocatedToVirtualServers",
            "67108864",
        ),
        ("uint64", "host", "KiB", "UsedVirtualMemory", "70254592"),
        ("uint64", "host", "KiB", "PagedInMemory", "0"),
        ("uint64", "host", "KiB", "PagedOutMemory", "0"),
        ("int64", "host", "s", "Time", &time),
    ];
    let mut text = "<metrics>\n".to_owned();
    for (kind, context, unit, name, value) in metrics {
        let unit = match unit {
            "" => String::new(),
            unit => format!(" unit=\"{unit}\""),
        };
        text.push_str(&format!(
            "  <metric type=\"{kind}\" context=\"{context}\"{unit}>\n    <name>{name}</name>\n    \
             <value>{value}</value>\n  </metric>\n"
        ));
    }
    text + "</metrics>"
}
