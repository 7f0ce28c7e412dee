// SPDX-License-Identifier: Apache-2.0
//! The targets: what is run on bytes, and what must hold of it. A target panics where something does not hold.

mod access;
mod documents;
mod host;
mod texts;
mod wire;

use std::path::Path;

use harvester_node_agent::sys::root::Root;
use tempfile::TempDir;

pub use access::{kubeconfig, token, x509_pem};
pub use documents::{config_toml, configmap_entry, distribution, yaml_document};
pub use host::host_metrics;
pub use texts::escape;
pub use wire::{api_objects, http_request, netlink, operator_channel, watch_stream};

/// Bytes that a reader may hold beside a multiple of its input.
const BASE: usize = 64 << 10;

/// The bytes in pieces. Their lengths follow from the bytes.
fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    let mut state = bytes.len();
    while !rest.is_empty() {
        let next = rest.first().copied().unwrap_or_default();
        state = state.wrapping_mul(31).wrapping_add(usize::from(next));
        let (piece, after) = rest.split_at((1 + state % 23).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

thread_local! {
    static TREE: TempDir = tempfile::tempdir().unwrap();
}

/// A tree with these files and no others.
fn with_tree<T>(files: &[(&str, &[u8])], run: impl FnOnce(&Root) -> T) -> T {
    TREE.with(|tree| {
        let root = Root::new(tree.path());
        for (path, content) in files {
            let path = root.join(path);
            if std::fs::write(&path, content).is_err() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, content).unwrap();
            }
        }
        let done = run(&root);
        for (path, _) in files {
            std::fs::remove_file(root.join(Path::new(path))).unwrap();
        }
        done
    })
}
