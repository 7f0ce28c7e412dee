// SPDX-License-Identifier: Apache-2.0
//! A D-Bus client: one connection to the system bus for the whole process, method calls with a timeout.
//!
//! A call has a name, a path, a method and string arguments. Generated proxies would add a state machine for each method to the
//! binary. The caller interprets the replies.

mod signals;
mod socket;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;
use zbus::connection::Builder;
use zbus::wire::{DynamicType, StructureBuilder, Variant};
use zbus::{Connection, Message};

use crate::sys::root::Root;
pub use signals::Signals;
use socket::Bounded;

/// The socket of the system bus, on which systemd's `dbus.socket` listens. Every system has it at the same path (D-Bus
/// specification, "System message bus").
pub const SOCKET: &str = "/run/dbus/system_bus_socket";

/// The timeout of a call. A hung bus must not block the agent.
#[cfg(not(test))]
pub const DEADLINE: Duration = Duration::from_secs(2);

/// In tests: no bus misses it, however busy the machine is. With a hung bus, the tests pause the clock.
#[cfg(test)]
pub const DEADLINE: Duration = Duration::from_secs(3600);

/// The target of a call: the name of a service, one of its objects and one of the object's interfaces.
#[derive(Debug, Clone, Copy)]
pub struct Peer<'a> {
    /// The name on the bus.
    pub name: &'a str,
    /// The object.
    pub path: &'a str,
    /// The interface.
    pub interface: &'a str,
}

/// The bus itself.
pub const DRIVER: Peer<'_> = Peer {
    name: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
};

/// systemd's manager.
pub const MANAGER: Peer<'_> = Peer {
    name: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};

/// The interface to read the properties of any object, and for their signals.
pub const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// The reason why the bus, or a service on it, did not respond.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// There is no system bus on this system, or not yet.
    #[error("no system bus: `{}` does not exist", .0.display())]
    Absent(PathBuf),
    /// The bus refuses or closed the connection; or it, or the service, is stopped or hangs.
    #[error("{0}")]
    Unreachable(String),
    /// The service returned an error.
    #[error("`{method}` failed: {said}")]
    Refused {
        /// The method.
        method: String,
        /// The response: the name of an error, and a text.
        said: zbus::Error,
    },
    /// The response has a type other than the interface defines.
    #[error("unexpected response to `{0}`")]
    Malformed(String),
}

impl BusError {
    /// Returns the name of the error in the service's response.
    pub fn name(&self) -> Option<String> {
        use zbus::DBusError;
        let Self::Refused { said, .. } = self else {
            return None;
        };
        match said {
            zbus::Error::MethodError(name, ..) => Some(name.to_string()),
            zbus::Error::FDO(error) => Some(error.name().to_string()),
            _ => None,
        }
    }

    /// Returns the error for a connection that ended.
    pub fn ended() -> Self {
        Self::Unreachable("the connection to the system bus was closed".to_owned())
    }
}

/// The system bus. Clones share one connection, which is opened at the first use, and again after it has ended.
#[derive(Debug, Clone)]
pub struct Bus {
    socket: PathBuf,
    connection: Arc<Mutex<Option<Connection>>>,
    /// Notified when a call gets no response. A bus that is stopped closes no connection.
    pub silence: Arc<Notify>,
}

impl Bus {
    /// Creates a client for the bus of the system below `root`. `address` is from the environment, and is used only on the running
    /// system, if it is the path of a socket: on no other bus is the size of messages limited.
    pub fn new(root: &Root, address: Option<&str>) -> Self {
        let path = address.filter(|_| root.is_live()).and_then(plain_path);
        Self {
            socket: path.map_or_else(|| root.join(SOCKET), PathBuf::from),
            connection: Arc::default(),
            silence: Arc::default(),
        }
    }

    async fn connect(&self) -> Result<Connection, BusError> {
        let failed = |said: zbus::Error| {
            let path = self.socket.display();
            let problem = format!("failed to connect to the system bus at `{path}`: {said}");
            BusError::Unreachable(problem)
        };
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => BusError::Absent(self.socket.clone()),
            _ => failed(error.into()),
        })?;
        let connection = Builder::socket(Bounded(stream)).build().await;
        connection.map_err(failed)
    }

    /// Returns a client of the same bus with a connection of its own, for a user that reads messages for a limited time.
    pub fn with_own_connection(&self) -> Self {
        Self {
            connection: Arc::default(),
            ..self.clone()
        }
    }

    /// Returns the error for a call without a response, after telling those who only receive signals.
    fn silent(&self) -> BusError {
        self.silence.notify_waiters();
        let limit = DEADLINE.as_secs();
        BusError::Unreachable(format!("no response on the system bus within {limit} s"))
    }

    /// Returns the open connection, or opens one before the deadline.
    pub async fn connection(&self) -> Result<Connection, BusError> {
        let mut slot = self.connection.lock().await;
        if let Some(open) = slot.as_ref().filter(|open| !open.is_closed()) {
            return Ok(open.clone());
        }
        *slot = None;
        let fresh = timeout(DEADLINE, self.connect()).await;
        let fresh = fresh.map_err(|_| self.silent())??;
        Ok(slot.insert(fresh).clone())
    }

    /// Returns the signals that are received from now on.
    pub async fn signals(&self) -> Result<Signals, BusError> {
        Ok(Signals::new(&self.connection().await?))
    }

    /// Calls a method whose arguments are all strings. Tries once, until the deadline.
    pub async fn call(
        &self,
        peer: Peer<'_>,
        method: &str,
        arguments: &[&str],
    ) -> Result<Message, BusError> {
        let fields = arguments.iter().map(|text| Variant::from(*text));
        let body = fields.fold(StructureBuilder::new(), StructureBuilder::append_field);
        match body.build() {
            Ok(body) => self.call_typed(peer, method, &body).await,
            // A structure has at least one field.
            Err(_) => self.call_typed(peer, method, &()).await,
        }
    }

    /// Calls a method with arguments of any type, as [`Bus::call`].
    pub async fn call_typed(
        &self,
        peer: Peer<'_>,
        method: &str,
        arguments: &(impl Serialize + DynamicType),
    ) -> Result<Message, BusError> {
        let connection = self.connection().await?;
        let (name, interface) = (Some(peer.name), Some(peer.interface));
        let call = connection.call_method(name, peer.path, interface, method, arguments);
        match timeout(DEADLINE, call).await {
            Err(_) => Err(self.silent()),
            Ok(Err(zbus::Error::InputOutput(_))) => Err(BusError::ended()),
            Ok(answer) => answer.map_err(|said| BusError::Refused {
                method: method.to_owned(),
                said,
            }),
        }
    }

    /// Reads one property. One of another type is malformed.
    pub async fn property<T>(&self, peer: Peer<'_>, property: &str) -> Result<T, BusError>
    where
        T: for<'v> TryFrom<Variant<'v>>,
    {
        let properties = Peer {
            interface: PROPERTIES,
            ..peer
        };
        let asked = [peer.interface, property];
        let answer = self.call(properties, "Get", &asked).await?;
        let body = answer.body();
        let value = body.deserialize::<Variant<'_>>().ok();
        let value = value.and_then(|value| T::try_from(value).ok());
        value.ok_or_else(|| BusError::Malformed(property.to_owned()))
    }

    /// Calls a method that returns one string or object path, and returns that. A response that is neither is malformed.
    pub async fn text(
        &self,
        peer: Peer<'_>,
        method: &str,
        arguments: &[&str],
    ) -> Result<String, BusError> {
        let answer = self.call(peer, method, arguments).await?;
        let body = answer.body();
        // A string and an object path have the same encoding.
        let text: Result<&str, _> = body.deserialize_ignore_signature();
        let is_text = matches!(body.signature().to_string().as_str(), "s" | "o");
        match text {
            Ok(text) if is_text => Ok(text.to_owned()),
            _ => Err(BusError::Malformed(method.to_owned())),
        }
    }
}

/// Returns the path of an address that has only a path.
fn plain_path(address: &str) -> Option<&str> {
    let path = address.strip_prefix("unix:path=")?;
    (!path.contains([',', ';', '%'])).then_some(path)
}

/// Returns the object path of a unit: systemd escapes every byte of the name that is not a letter or a digit as `_` and two
/// hexadecimal digits (`bus_label_escape`, src/basic/bus-label.c).
pub fn unit_path(unit: &str) -> String {
    let mut path = "/org/freedesktop/systemd1/unit/".to_owned();
    for (index, byte) in unit.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (index > 0 && byte.is_ascii_digit()) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn in_a_tree_only_the_bus_of_the_tree_is_asked() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::new(tree.path());
        let bus = Bus::new(&root, Some("unix:path=/run/dbus/system_bus_socket"));
        let error = bus.call(MANAGER, "Reload", &[]).await.unwrap_err();
        assert!(
            matches!(&error, BusError::Absent(path) if *path == root.join(SOCKET)),
            "{error:?}"
        );
    }

    #[test]
    fn an_address_that_is_a_path_is_taken_apart() {
        for (address, path) in [
            (
                "unix:path=/run/dbus/system_bus_socket",
                Some("/run/dbus/system_bus_socket"),
            ),
            ("unix:path=/a,guid=0", None),
            ("unix:path=/a%20b", None),
            ("unix:path=/a;unix:path=/b", None),
            ("unix:abstract=/a", None),
        ] {
            assert_eq!(plain_path(address), path, "{address}");
        }
    }

    #[test]
    fn unit_paths_are_those_that_systemd_makes() {
        for (unit, path) in [
            (
                r"dev-virtio\x2dports-org.qemu.guest_agent.0.device",
                "dev_2dvirtio_5cx2dports_2dorg_2eqemu_2eguest_5fagent_2e0_2edevice",
            ),
            ("qemu-ga.service", "qemu_2dga_2eservice"),
            ("0a.service", "_30a_2eservice"),
        ] {
            let expected = format!("/org/freedesktop/systemd1/unit/{path}");
            assert_eq!(unit_path(unit), expected);
        }
    }
}
