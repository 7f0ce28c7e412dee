// SPDX-License-Identifier: Apache-2.0
//! A machine that is called otherwise.

use crate::IDENTITY;
use crate::stage::Stage;

/// By the kernel alone, and by hostnamed, which also writes the file; each time there and back.
pub async fn a_wrong_hostname_is_reported_and_so_is_the_right_one(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    let right = stage.world.node_name().to_owned();
    let ways = [
        ("hostname", "hostname"),
        ("hostnamectl", "hostnamectl hostname"),
    ];
    for (turn, (way, command)) in ways.into_iter().enumerate() {
        stage.begin().await;
        let wrong = format!("wrong-{turn}");
        stage.inside.sh(&format!("{command} {wrong}")).await;
        stage.recorded(&format!("` to `{wrong}`: ")).await;
        stage.condition_becomes(IDENTITY, "False", "Mismatch").await;
        stage.inside.has_finding("hostname-differs").await;

        stage.inside.sh(&format!("{command} {right}")).await;
        stage.recorded(&format!("` to `{right}`: ")).await;
        stage
            .condition_becomes(IDENTITY, "True", "NamesMatch")
            .await;
        let records = stage.recorded("resolved: hostname-differs").await;
        for record in &records {
            println!("{way}: {}", record.message());
        }
        stage.inside.has_no_finding().await;
    }
    stage.labelled("hv-a").await;
}
