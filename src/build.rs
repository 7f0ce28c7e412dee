// SPDX-License-Identifier: Apache-2.0
//! Tells the linker where the stack unwinder comes from, which code lies apart (`cold.ld`), and what is left
//! out (`unwind.ld`).
//!
//! The standard library asks for `libgcc_s.so.1`. The same code as an archive costs 20 kB of the binary instead of a mapped
//! library of 84 kB in each process, and leaves the C library as the only one that has to be installed.

#[expect(
    clippy::disallowed_methods,
    reason = "the environment is how cargo names the target"
)]
fn main() {
    println!("cargo:rerun-if-changed=src/build.rs");
    println!("cargo:rerun-if-changed=src/cold.ld");
    println!("cargo:rerun-if-changed=src/unwind.ld");
    let is = |key: &str, value: &str| std::env::var(key).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-lib=gcc_eh");
        if let Ok(root) = std::env::var("CARGO_MANIFEST_DIR") {
            println!("cargo:rustc-link-arg-bins=-Wl,-T,{root}/src/cold.ld");
            if is("PROFILE", "release") {
                println!("cargo:rustc-link-arg-bins=-Wl,-T,{root}/src/unwind.ld");
            }
        }
    }
}
