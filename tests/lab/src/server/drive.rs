// SPDX-License-Identifier: Apache-2.0
//! Driving a server without HTTP: accounts, watches and the log.

use super::Server;
use super::access::User;
use super::log::{RequestRecord, WatchWrite};
use super::watch::Command;

impl Server {
    /// The resource version of the newest change of any object.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.shared.store.revision()
    }

    /// Accepts a bearer token for a user.
    pub fn add_token(&self, token: &str, user: User) {
        self.shared.lock_tokens().insert(token.to_owned(), user);
    }

    /// Accepts a bearer token no longer.
    pub fn remove_token(&self, token: &str) {
        self.shared.lock_tokens().remove(token);
    }

    /// How many watches are open of clients whose User-Agent begins so: the guest cluster's server also has that of the recorder.
    #[must_use]
    pub fn watches_of(&self, user_agent_prefix: &str) -> usize {
        self.shared.watches.count_of(user_agent_prefix)
    }

    /// Ends all open watches cleanly, as kube-apiserver does after their time.
    pub fn end_watches(&self) {
        self.shared.watches.tell_all(&Command::End);
    }

    /// Cuts the connections of all open watches.
    pub fn drop_watches(&self) {
        self.shared.watches.tell_all(&Command::Abort);
    }

    /// All watches that are open stay open and say nothing more, as over a path that has been lost. New ones work.
    pub fn hush_watches(&self) {
        self.shared.watches.tell_all(&Command::Hush);
    }

    /// Sends bytes into all open watches as they are.
    pub fn write_to_watches(&self, bytes: &[u8]) {
        self.flood_watches(bytes, 1);
    }

    /// Sends the same bytes several times.
    pub fn flood_watches(&self, bytes: &[u8], times: usize) {
        let bytes = bytes::Bytes::copy_from_slice(bytes);
        for _ in 0..times {
            self.shared.watches.tell_all(&Command::Bytes(bytes.clone()));
        }
    }

    /// The requests since the start or the last [`Server::clear_requests`] of clients whose User-Agent begins so, in the order of their
    /// arrival.
    #[must_use]
    pub fn requests_of(&self, user_agent_prefix: &str) -> Vec<RequestRecord> {
        let mut requests = self.shared.log.requests();
        requests.retain(|request| request.user_agent.starts_with(user_agent_prefix));
        requests
    }

    /// The requests that asked for a change, refused ones too.
    #[must_use]
    pub fn writes(&self) -> Vec<RequestRecord> {
        let mut requests = self.shared.log.requests();
        requests.retain(RequestRecord::is_write);
        requests
    }

    /// The watch events that were written, with their times.
    #[must_use]
    pub fn watch_writes(&self) -> Vec<WatchWrite> {
        self.shared.log.watch_writes()
    }

    /// Forgets the requests and watch writes so far.
    pub fn clear_requests(&self) {
        self.shared.log.clear();
    }
}
