//! stub
#![allow(missing_docs)]
use std::{collections::BTreeMap, time::Duration};
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnChange {
    Follow,
    Hold,
    Report,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologySettings {
    pub on_change: OnChange,
    pub host_label: Option<String>,
    pub remove_stale: bool,
    pub extra: BTreeMap<String, String>,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    pub settle: Duration,
    pub poll: Duration,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rep {
    pub node_conditions: bool,
    pub events: bool,
    pub annotations: bool,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub topology: TopologySettings,
    pub timing: Timing,
    pub report: Rep,
}
