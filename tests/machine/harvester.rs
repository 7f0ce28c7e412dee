// SPDX-License-Identifier: Apache-2.0
//! Both API servers for the machine that `tests/machine/checks` runs, with the VM that the machine is. Takes the root of its file
//! system, into which it writes the credentials, and its firmware UUID. Then carries out the steps of a migration that it reads
//! from standard input, and says `ok` after each. Runs in the network of the machine, and ends with standard input.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use harvester_lab::harvester::{Firmware, Migration, Order, VmSpec};
use harvester_lab::world::{VM_NAME, World, WorldOptions};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Outcome<()> {
    let mut arguments = std::env::args_os().skip(1);
    let machine = PathBuf::from(arguments.next().ok_or("no root of a file system")?);
    let firmware = arguments.next().ok_or("no firmware UUID")?;
    let firmware = Firmware::Fixed(firmware.to_string_lossy().to_lowercase());
    let vm = VmSpec {
        macs: Vec::new(),
        serial: None,
        firmware,
        ..VmSpec::named(VM_NAME)
    };
    let world = World::lab(WorldOptions {
        vm,
        ..WorldOptions::default()
    })
    .await;
    copy(&world, &machine)?;
    println!("ok");
    let mut migration = None;
    for step in std::io::stdin().lines() {
        take(&world, &step?, &mut migration).await?;
        println!("ok");
    }
    Ok(())
}

/// Copies the credentials and the configuration of Kubernetes.
fn copy(world: &World, machine: &Path) -> Outcome<()> {
    for directory in ["etc/rancher", "var/lib/rancher"] {
        let from = world.guest.root().join(directory);
        let to = machine.join(directory);
        std::fs::create_dir_all(&to)?;
        let copied = Command::new("cp").arg("-aT").arg(from).arg(to).status()?;
        if !copied.success() {
            return Err(format!("{directory}: {copied}").into());
        }
    }
    Ok(())
}

async fn take(world: &World, step: &str, migration: &mut Option<Migration>) -> Outcome<()> {
    let (harvester, vm) = (&world.harvester, &world.vm);
    if let Some(host) = step.strip_prefix("prepare ") {
        *migration = Some(harvester.prepare_migration(vm, host).await?);
        return Ok(());
    }
    let begun = migration.as_ref().ok_or("no migration")?;
    match step {
        "copy" => harvester.copy_memory(begun).await?,
        "switch" => {
            harvester.switch_host(begun, Order::UpTo1_5).await?;
            harvester.annotate(vm).await?;
            harvester.clean_up_migration(begun).await?;
        }
        _ => return Err(format!("unknown step `{step}`").into()),
    }
    Ok(())
}
