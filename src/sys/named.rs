// SPDX-License-Identifier: Apache-2.0
//! Enumerations whose variants have a name in reports.

/// Declares an enumeration with the name of each variant, in texts and in JSON.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// All variants, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

pub(crate) use named;
