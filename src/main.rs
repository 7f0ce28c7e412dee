// SPDX-License-Identifier: Apache-2.0
//! Binary.
fn main() {}
