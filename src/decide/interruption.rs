// SPDX-License-Identifier: Apache-2.0
//! Estimates how long a live migration interrupted the guest.
//!
//! No clock of the guest runs while its processors are stopped, so after a migration the wall clock is late by the interruption.
//! KubeVirt then sets it through qemu-guest-agent, once a second until it succeeds, for 60 s (`setGuestTime` in
//! `pkg/virt-launcher/virtwrap/manager.go`): the first step after a migration shows how late it was. The clocks of the guest alone
//! show nothing.

use std::time::Duration;

use crate::facts::clock::ClockStep;

/// The maximum time between the migration and the step: 60 s of attempts, and the time that the host takes to finish the migration.
const STEP_MAX_DELAY: Duration = Duration::from_secs(90);

/// The shortest step that counts. Later attempts to set the clock are smaller.
const MIN: Duration = Duration::from_millis(1);

/// The longest interruption that is believed. A larger step corrects a clock that was wrong before.
const MAX: Duration = Duration::from_secs(30);

/// Returns the interruption by a migration that was observed at `moved`, from the first step of the wall clock after it. `None` if
/// the step does not belong to the migration, or shows no interruption.
pub(super) fn estimate(moved: Duration, stepped: Duration, step: ClockStep) -> Option<Duration> {
    let is_prompt = stepped.checked_sub(moved)? <= STEP_MAX_DELAY;
    let late = u64::try_from(step.0).ok().map(Duration::from_nanos)?;
    (is_prompt && (MIN..=MAX).contains(&late)).then_some(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_small_step_forward_soon_after_a_migration_shows_an_interruption() {
        let moved = Duration::from_secs(100);
        let estimate = |seconds: u64, milliseconds: i128| {
            let stepped = Duration::from_secs(seconds);
            estimate(moved, stepped, ClockStep(milliseconds * 1_000_000))
        };
        let interruption = Some(Duration::from_millis(89));
        assert_eq!(estimate(100, 89), interruption);
        assert_eq!(estimate(190, 89), interruption);
        assert_eq!(estimate(191, 89), None, "NTP or an administrator");
        assert_eq!(estimate(99, 89), None, "before the migration");
        assert_eq!(estimate(102, 0), None);
        assert_eq!(estimate(102, -89), None, "the clock was fast");
        assert_eq!(estimate(102, 30_000), Some(Duration::from_secs(30)));
        assert_eq!(estimate(102, 30_001), None, "the clock was wrong");
    }
}
