// SPDX-License-Identifier: Apache-2.0
//! Utilities for the operating system: files below `--root` and their changes, atomic files, the lock, timers, escaping, and parsers
//! of YAML and JSON with a memory limit; and enumerations whose variants have names. Independent of Kubernetes.

pub mod atomic_file;
pub mod disk;
pub mod document;
pub mod epoll;
pub mod escape;
pub mod file_watch;
pub mod lock;
pub(crate) mod named;
pub mod root;
pub mod timer;
