// SPDX-License-Identifier: Apache-2.0
//! What the rest stands on: the tree of files below `--root`, atomic files, the lock, timers, escaping, and documents with a
//! budget. Nothing here knows Kubernetes.

pub mod atomic_file;
pub mod document;
pub mod epoll;
pub mod escape;
pub mod lock;
pub mod root;
pub mod timer;
