// SPDX-License-Identifier: Apache-2.0
//! One instance in a metadata list.

use serde::Deserialize;

use crate::facts::names::VmName;
use crate::facts::vmi::{NotAVmi, Owners};
use crate::sys::document::json::{Identifier, objects};

/// The kept fields of an instance in a metadata list. A namespace may hold thousands of instances, and other users write their
/// labels and annotations.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(try_from = "Item")]
pub(super) struct ListedVmi {
    pub(super) name: VmName,
    pub(super) uid: String,
    /// The UID of the VM that owns it.
    pub(super) owner: Option<String>,
}

objects! {
    struct Item { metadata: ItemMeta, }

    struct ItemMeta {
        name: Option<Identifier>,
        uid: Option<Identifier>,
        owner_references: Owners,
    }
}

impl TryFrom<Item> for ListedVmi {
    type Error = NotAVmi;

    fn try_from(Item { metadata }: Item) -> Result<Self, NotAVmi> {
        let name = metadata.name.ok_or(NotAVmi::Missing("metadata.name"))?;
        Ok(Self {
            name: VmName::parse(&name).map_err(NotAVmi::name("metadata.name"))?,
            uid: metadata.uid.ok_or(NotAVmi::Missing("metadata.uid"))?.0,
            owner: metadata.owner_references.vm_uid,
        })
    }
}
