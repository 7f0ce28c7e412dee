// SPDX-License-Identifier: Apache-2.0
//! One instance in a metadata list.

use serde::Deserialize;

use crate::facts::names::VmName;
use crate::facts::node::required;
use crate::facts::vmi::{INSTANCE, Owners};
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
    type Error = String;

    fn try_from(Item { metadata }: Item) -> Result<Self, String> {
        Ok(Self {
            name: required(INSTANCE, "metadata.name", metadata.name)?,
            uid: required(INSTANCE, "metadata.uid", metadata.uid)?,
            owner: metadata.owner_references.vm_uid,
        })
    }
}
