// SPDX-License-Identifier: Apache-2.0
//! The notation of the catalog: for each code its name, group, severity and title, its `impact`, the steps that `fix` it, and
//! optionally the [`Flag`](super::entries::Flag)s that are set (in brackets after the severity), at most two links to `see` instead of
//! the page about the group, the commands to `run`, each after its place, and the codes that it `suppresses`. An entry without a `fix`
//! is one of an image with a file to remove.

/// Declares the codes and their entries together, so that no part of an entry can be missing.
macro_rules! catalog {
    (@fix) => { &[CLEAN] };
    (@fix [$($step:expr),+ $(,)?]) => { &[$($step),+] };
    ($($code:ident, $name:literal, $group:ident, $severity:ident $([$($flag:ident),+])?, $title:literal,
        $(see: [$($link:expr),+],)?
        impact: $impact:literal $(, fix: $fix:tt)? $(, run: [$($place:ident $command:expr),* $(,)?])?
        $(, suppresses: [$($suppressed:ident),* $(,)?])?;)*) => {
        named! {
            /// The codes. Each name is kebab-case, and never changes.
            Code {
                $(
                    #[doc = $title]
                    $code = $name,
                )*
            }
        }

        impl Code {
            /// Returns the entry of the code.
            pub fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$code => {
                        static ENTRY: Entry = Entry {
                            code: Code::$code,
                            reason: stringify!($code),
                            group: Group::$group,
                            severity: Severity::$severity,
                            flags: &[$($(Flag::$flag),+)?],
                            title: $title,
                            see: &[$($($link),+)?],
                            impact: $impact,
                            fix: catalog!(@fix $($fix)?),
                            commands: &[$($(FixCommand::of_catalog(CommandPlace::$place, $command)),*)?],
                            suppresses: &[$($(Code::$suppressed),*)?],
                        };
                        &ENTRY
                    })*
                }
            }
        }
    };
}

pub(super) use catalog;
