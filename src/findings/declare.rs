// SPDX-License-Identifier: Apache-2.0
//! How the catalogue is written down: for each code its name, group, severity and title, `why` it matters, what will `fix`
//! it, and where there are any, the commands to `run`, each with its place in front, and what it `silences`.

/// Where a command is typed.
macro_rules! place {
    (vm) => {
        Place::Vm
    };
    (guest) => {
        Place::GuestCluster
    };
    (harvester) => {
        Place::Harvester
    };
    (image) => {
        Place::Image
    };
}

/// Declares the codes and their entries in one place, so that none can lack a part.
macro_rules! catalogue {
    ($($code:ident, $name:literal, $group:ident, $severity:ident, $title:literal,
        why: $consequence:literal, fix: $remedy:literal $(, run: [$($place:ident $command:literal),* $(,)?])?
        $(, silences: [$($silenced:ident),*])?;)*) => {
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

            /// What is known about it.
            pub fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$code => {
                        static ENTRY: Entry = Entry {
                            code: Code::$code,
                            name: $name,
                            group: Group::$group,
                            severity: Severity::$severity,
                            title: $title,
                            consequence: $consequence,
                            remedy: $remedy,
                            commands: &[$($(Command {
                                place: place!($place),
                                text: Cow::Borrowed($command),
                            }),*)?],
                            silences: &[$($(Code::$silenced),*)?],
                        };
                        &ENTRY
                    })*
                }
            }
        }
    };
}

pub(super) use {catalogue, place};
