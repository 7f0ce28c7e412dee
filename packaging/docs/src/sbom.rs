// SPDX-License-Identifier: Apache-2.0
//! Describes the agent and the libraries that are linked into it as a software bill of materials, in the format CycloneDX 1.5.

use clap::CommandFactory;
use harvester_node_agent::commands::Arguments;
use serde_json::{Value, json};

use crate::libraries::Library;

/// Returns the document. `date` is that of the release, as `YYYY-MM-DD`.
pub(crate) fn document(libraries: &[Library], date: &str) -> String {
    let command = Arguments::command();
    let version = command.get_version().unwrap_or_default();
    let agent = reference("harvester-node-agent", version);
    let components: Vec<Value> = libraries.iter().map(component).collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": format!("{date}T00:00:00Z"),
            "component": {
                "type": "application",
                "bom-ref": agent,
                "name": "harvester-node-agent",
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
    });
    format!("{document:#}\n")
}

fn component(library: &Library) -> Value {
    let reference = reference(&library.name, &library.version);
    json!({
        "type": "library",
        "bom-ref": reference,
        "name": library.name,
        "version": library.version,
        "purl": reference,
        "licenses": [{"expression": library.license}],
        "hashes": [{"alg": "SHA-256", "content": library.checksum}],
    })
}

/// Returns the package URL, <https://github.com/package-url/purl-spec>. A plus sign of a version is escaped.
fn reference(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use cyclonedx_bom::prelude::{Bom, Validate};

    #[test]
    fn the_document_is_valid_and_lists_each_library_with_its_checksum() {
        let libraries = crate::libraries::linked().unwrap();
        let text = super::document(&libraries, "2026-01-02");
        let bom = Bom::parse_from_json_v1_5(text.as_bytes()).unwrap();
        let result = bom.validate();
        assert!(result.passed(), "{result:?}");
        let components = bom.components.unwrap().0;
        assert_eq!(components.len(), libraries.len());
        for name in ["ring", "rustls", "tokio", "zbus", "serde_json"] {
            let found = components
                .iter()
                .find(|component| component.name.to_string() == name);
            let hashes = found
                .and_then(|component| component.hashes.as_ref())
                .unwrap();
            assert_eq!(hashes.0[0].content.0.len(), 64, "{name}");
        }
        for name in ["cc", "serde_derive", "harvester-lab"] {
            let listed = components
                .iter()
                .any(|component| component.name.to_string() == name);
            assert!(!listed, "{name} is not linked");
        }
    }
}
