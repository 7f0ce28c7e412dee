// SPDX-License-Identifier: Apache-2.0
//! The decision.

use harvester_node_agent::fuzz;

use super::Target;

/// Each decision of any history keeps the invariants, and comes to rest.
pub(super) const PLAN: Target = Target {
    name: "plan",
    run: |bytes| fuzz::history(bytes.get(..bytes.len().min(128)).unwrap_or_default()),
    words: &[
        "\0\0",
        "\u{12}\u{04}",
        "\u{11}\u{06}",
        "\u{0c}\0",
        "\u{07}\0",
        "\u{08}\0",
        "\u{0f}\u{41}",
        "\u{03}\0",
    ],
};
