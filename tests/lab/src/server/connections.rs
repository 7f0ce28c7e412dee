// SPDX-License-Identifier: Apache-2.0
//! The listener and its connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::handler::{self, Certificate};
use super::wire::{Door, Port, Tap, Valve};

/// The open connections by number.
pub(crate) type Connections = BTreeMap<u64, OpenConnection>;

/// An open connection.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    pub task: AbortHandle,
    /// The valve below TLS.
    pub valve: Valve,
}

/// Serves the port as `door` says, and tells in `done` what it has carried out.
pub(crate) async fn listen(
    shared: Arc<Shared>,
    port: Port,
    mut door: watch::Receiver<Door>,
    done: watch::Sender<Option<Door>>,
) {
    let mut listener: Option<TcpListener> = None;
    let mut held = Vec::new();
    let mut number = 0;
    loop {
        let wanted = *door.borrow_and_update();
        if wanted == Door::Closed {
            listener = None;
        } else if listener.is_none() {
            listener = Some(port.listen().expect("the port is reserved"));
        }
        if wanted == Door::Open {
            held.clear();
        }
        done.send_replace(Some(wanted));
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = door.changed() => if changed.is_err() { return },
            accepted = accepted => {
                // A client that is gone before it is accepted is no loss.
                let Ok((socket, _)) = accepted else { continue };
                if wanted == Door::Silent {
                    held.push(socket);
                } else {
                    number += 1;
                    take_in(&shared, number, socket);
                }
            }
        }
    }
}

fn take_in(shared: &Arc<Shared>, number: u64, socket: TcpStream) {
    let valve = Valve::default();
    // The table is locked until the entry stands, so that the task cannot take it out before.
    let mut connections = shared.lock_connections();
    let task = tokio::spawn(run_connection(
        Registered {
            shared: shared.clone(),
            number,
        },
        socket,
        valve.clone(),
    ));
    let task = task.abort_handle();
    connections.insert(number, OpenConnection { task, valve });
}

/// Takes the connection out of the table however its task ends.
struct Registered {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.lock_connections().remove(&self.number);
    }
}

async fn run_connection(registered: Registered, socket: TcpStream, valve: Valve) {
    let shared = &registered.shared;
    // Latency is measured with this server; a delayed acknowledgement must not be part of it.
    let _ = socket.set_nodelay(true);
    let config = shared
        .tls
        .lock()
        .expect("no holder of the TLS side panics")
        .clone();
    let Ok(stream) = TlsAcceptor::from(config)
        .accept(Tap::new(socket, valve))
        .await
    else {
        return;
    };
    let certificate = match stream.get_ref().1.peer_certificates() {
        None | Some([]) => Certificate::Absent,
        Some(chain) => match shared.client_authority.user_of(chain) {
            Some(user) => Certificate::Good(user),
            None => Certificate::Bad,
        },
    };
    let connection = handler::Connection {
        certificate,
        valve: Valve::default(),
    };
    let io = TokioIo::new(Tap::new(stream, connection.valve.clone()));
    let service = service_fn(|request| handler::serve(shared.clone(), connection.clone(), request));
    // Errors of a connection are the clients' doing, or that of a fault.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(io, service)
        .await;
}
