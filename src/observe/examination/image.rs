// SPDX-License-Identifier: Apache-2.0
//! Reads what the image brought that belongs to one machine.

use super::Given;
use crate::facts::examination::image::Image;
use crate::facts::{Why, WhyKind};

/// Reads them.
pub(super) async fn read(_: &Given<'_>) -> Image {
    Image::unseen(&Why::new(
        WhyKind::NotAsked,
        "this version does not look at it",
    ))
}
