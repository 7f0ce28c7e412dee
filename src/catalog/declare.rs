// SPDX-License-Identifier: Apache-2.0
//! The notation of the catalog: for each code its name, group, severity and title, its `impact`, the steps that `fix` it, and
//! optionally the [`Flags`](super::entries::Flags) that are set (in brackets after the severity), at most two links to `see` instead of
//! the page about the group, the commands to `run`, each after its place, and the codes that it `suppresses`.

/// The place where a command is run.
macro_rules! place {
    (vm) => {
        CommandPlace::Vm
    };
    (guest) => {
        CommandPlace::GuestCluster
    };
    (harvester) => {
        CommandPlace::Harvester
    };
    (image) => {
        CommandPlace::Image
    };
}

/// Declares the codes and their entries together, so that no part of an entry can be missing.
macro_rules! catalog {
    ($($code:ident, $name:literal, $group:ident, $severity:ident $([$($flag:ident),+])?, $title:literal,
        $(see: [$($link:expr),+],)?
        impact: $impact:literal, fix: [$($step:expr),+ $(,)?] $(, run: [$($place:ident $command:expr),* $(,)?])?
        $(, suppresses: [$($suppressed:ident),* $(,)?])?;)*) => {
        /// The codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(
                #[doc = $title]
                $code,
            )*
        }

        impl Code {
            /// All codes, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// Returns the entry of the code.
            pub fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$code => {
                        static ENTRY: Entry = Entry {
                            code: Code::$code,
                            name: $name,
                            reason: stringify!($code),
                            group: Group::$group,
                            severity: Severity::$severity,
                            flags: Flags { $($($flag: true,)+)? ..Flags::NONE },
                            title: $title,
                            see: &[$($($link),+)?],
                            impact: $impact,
                            fix: &[$($step),+],
                            commands: &[$($(FixCommand {
                                place: place!($place),
                                text: Cow::Borrowed($command),
                            }),*)?],
                            suppresses: &[$($(Code::$suppressed),*)?],
                        };
                        &ENTRY
                    })*
                }
            }
        }
    };
}

pub(super) use {catalog, place};
