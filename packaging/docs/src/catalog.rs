// SPDX-License-Identifier: Apache-2.0
//! Generates the journal's message catalog, which `journalctl -x` prints (<https://systemd.io/CATALOG/>).

use std::fmt::Write;

use harvester_node_agent::report::message_id::ALL;

/// Returns the catalog, one entry for each kind of journal entry.
pub(crate) fn text() -> String {
    let mut text = String::from("# SPDX-License-Identifier: Apache-2.0\n");
    for kind in ALL {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n-- {}\nSubject: {}\nDefined-By: harvester-node-agent\n\
             Documentation: man:harvester-node-agent(1)\n\n{}",
            kind.id, kind.subject, kind.explanation
        );
    }
    text
}
