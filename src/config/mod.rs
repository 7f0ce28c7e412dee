//! stub
#![allow(missing_docs)]
use crate::facts::names::*;
use crate::facts::placement::Source;
use std::{collections::BTreeMap, time::Duration};
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnChange {
    Follow,
    Hold,
    Report,
}
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelKey(String);
impl LabelKey {
    pub fn parse(s: &str) -> Result<Self, String> {
        Ok(Self(s.to_owned()))
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologySettings {
    pub on_change: OnChange,
    pub host_label: Option<LabelKey>,
    pub remove_stale: bool,
    pub sources: Vec<Source>,
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
pub struct H {
    pub vm: Option<VmName>,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct L {
    pub extra: BTreeMap<LabelKey, LabelKey>,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub harvester: H,
    pub labels: L,
    pub topology: TopologySettings,
    pub timing: Timing,
    pub report: Rep,
}
impl Default for Settings {
    fn default() -> Self {
        Settings {
            harvester: H { vm: None },
            labels: L {
                extra: BTreeMap::new(),
            },
            topology: TopologySettings {
                on_change: OnChange::Follow,
                host_label: Some(LabelKey("topology.harvesterhci.io/host".into())),
                remove_stale: false,
                sources: Source::ALL.to_vec(),
            },
            timing: Timing {
                settle: Duration::from_secs(10),
                poll: Duration::from_secs(600),
            },
            report: Rep {
                node_conditions: true,
                events: true,
                annotations: true,
            },
        }
    }
}
