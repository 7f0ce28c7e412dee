// SPDX-License-Identifier: Apache-2.0
//! Reports changes of a file descriptor that tokio itself cannot watch.
//!
//! tokio keeps a hang-up indefinitely: for a virtio-serial port whose host side is closed and opened again it would return at
//! once, again and again. And it does not distinguish `EPOLLPRI` on a file in `/proc` from readiness to read. So the descriptor is
//! added to a separate, edge-triggered epoll(7) instance, and tokio waits for that instance, which is readable while it has an
//! edge: one wake-up for each change.

use std::io::{Error, ErrorKind};
use std::os::fd::AsFd;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tokio::net::unix::pipe;

/// An open file, and a watch for its edges.
#[derive(Debug)]
pub struct EdgeTriggered<F> {
    // Dropped before the file: an epoll instance must not outlive the file that it watches.
    inner: Epoll,
    /// The same epoll instance, in a form for which tokio can wait.
    readable: pipe::Receiver,
    /// The file.
    pub file: F,
}

impl<F: AsFd> EdgeTriggered<F> {
    /// Watches `file`. A state that already exists is the first edge. Fails if it never changes, like a regular file.
    /// `EPOLLPRI` on a file in `/proc` is reported only together with `EPOLLIN`: a poll for one of them consumes the event.
    pub fn of(file: F, interest: EpollFlags) -> Result<Self, Error> {
        let inner = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let event = EpollEvent::new(interest | EpollFlags::EPOLLET, 0);
        inner.add(&file, event)?;
        // tokio treats it like the read end of a pipe: a descriptor that becomes readable.
        let readable = pipe::Receiver::from_owned_fd_unchecked(inner.0.try_clone()?)?;
        Ok(Self {
            inner,
            readable,
            file,
        })
    }

    /// Waits for the next edge, and returns the current readiness of the descriptor. Cancel-safe. Does not fail on any known kernel.
    pub async fn next(&self) -> Result<EpollFlags, Error> {
        loop {
            self.readable.readable().await?;
            let taken = self.readable.try_io(|| {
                let mut events = [EpollEvent::empty()];
                let count = self.inner.wait(&mut events, EpollTimeout::ZERO)?;
                let [event] = events;
                match count {
                    0 => Err(ErrorKind::WouldBlock.into()),
                    _ => Ok(event.events()),
                }
            });
            match taken {
                Err(error)
                    if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
                taken => return taken,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvester_lab::world::SOON;
    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;
    use std::io::{Read, Write};
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_writer_that_comes_and_goes_a_hundred_times_costs_an_edge_for_each_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        let reader = std::fs::File::from(open(&path, flags, Mode::empty()).unwrap());
        let edges = EdgeTriggered::of(reader, EpollFlags::EPOLLIN).unwrap();
        let mut woken = 0;
        for _ in 0..100 {
            let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            writer.write_all(b"x").unwrap();
            let data = timeout(SOON, edges.next()).await.unwrap().unwrap();
            assert!(data.contains(EpollFlags::EPOLLIN), "{data:?}");
            assert_eq!((&edges.file).read(&mut [0; 8]).unwrap(), 1);
            drop(writer);
            let away = timeout(SOON, edges.next()).await.unwrap().unwrap();
            assert!(away.contains(EpollFlags::EPOLLHUP), "{away:?}");
            woken += 2;
            while timeout(Duration::from_millis(1), edges.next())
                .await
                .is_ok()
            {
                woken += 1;
            }
        }
        assert!(woken <= 400, "{woken} edges for 100 hang-ups");
    }

    #[tokio::test]
    async fn a_regular_file_is_refused() {
        let file = tempfile::tempfile().unwrap();
        EdgeTriggered::of(&file, EpollFlags::EPOLLIN).unwrap_err();
    }
}
