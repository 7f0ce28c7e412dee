// SPDX-License-Identifier: Apache-2.0
//! Changes of a descriptor that tokio itself cannot follow.
//!
//! tokio keeps a hang-up indefinitely: of a virtio-serial port whose host side comes and goes it would wake at once, again and
//! again. And it does not tell `EPOLLPRI` of a file in `/proc` from readiness to read. So the descriptor is put in an
//! epoll(7) instance of its own, edge-triggered, and tokio waits for that instance, which is readable when it holds an edge:
//! one wake-up for each change.

use std::os::fd::AsFd;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tokio::net::unix::pipe;

/// Waits for edges of one descriptor.
#[derive(Debug)]
pub struct EdgeTriggered {
    inner: Epoll,
    /// The same epoll instance, as tokio can wait for it.
    readable: pipe::Receiver,
}

impl EdgeTriggered {
    /// Follows `descriptor`, which must stay open as long as this is used. A state that holds already is the first edge.
    /// `EPOLLPRI` of a file in `/proc` is reported only together with `EPOLLIN`: looking for the one takes the event away.
    ///
    /// # Errors
    ///
    /// When the kernel gives us no epoll instance, or the descriptor is one that never changes, as a regular file.
    pub fn of(descriptor: impl AsFd, interest: EpollFlags) -> std::io::Result<Self> {
        let inner = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        inner.add(
            descriptor,
            EpollEvent::new(interest | EpollFlags::EPOLLET, 0),
        )?;
        // To tokio it is a descriptor that becomes readable, as the reading end of a pipe does.
        let readable = pipe::Receiver::from_owned_fd_unchecked(inner.0.try_clone()?)?;
        Ok(Self { inner, readable })
    }

    /// The next edge: what the descriptor is ready for now. Cancel-safe.
    ///
    /// # Errors
    ///
    /// When the epoll instance cannot be read any more, which no known kernel does.
    pub async fn next(&self) -> std::io::Result<EpollFlags> {
        loop {
            self.readable.readable().await?;
            let taken = self.readable.try_io(|| {
                let mut events = [EpollEvent::empty()];
                match self.inner.wait(&mut events, EpollTimeout::ZERO) {
                    Ok(0) => Err(std::io::ErrorKind::WouldBlock.into()),
                    Ok(_) => Ok(events
                        .first()
                        .map_or(EpollFlags::empty(), EpollEvent::events)),
                    Err(nix::errno::Errno::EINTR) => Ok(EpollFlags::empty()),
                    Err(errno) => Err(errno.into()),
                }
            });
            match taken {
                Ok(flags) if flags.is_empty() => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                taken => return taken,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;
    use std::io::{Read, Write};
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_writer_that_comes_and_goes_a_hundred_times_costs_an_edge_for_each_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        let mut reader = std::fs::File::from(open(&path, flags, Mode::empty()).unwrap());
        let edges = EdgeTriggered::of(&reader, EpollFlags::EPOLLIN).unwrap();
        let mut woken = 0;
        for _ in 0..100 {
            let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            writer.write_all(b"x").unwrap();
            let data = timeout(SOON, edges.next()).await.unwrap().unwrap();
            assert!(data.contains(EpollFlags::EPOLLIN), "{data:?}");
            assert_eq!(reader.read(&mut [0; 8]).unwrap(), 1);
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
