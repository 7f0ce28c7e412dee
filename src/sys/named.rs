// SPDX-License-Identifier: Apache-2.0
//! Enumerations whose variants have a name in reports.

/// Declares an enumeration with the name of each variant, in texts and in JSON. One that is `plain` has them in texts alone, and several
/// variants may have the same.
macro_rules! named {
    (plain $(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
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
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $crate::sys::named::named! {
            plain
            $(#[$doc])*
            #[derive(serde::Serialize, serde::Deserialize)]
            $name { $($(#[$variant_doc])* #[serde(rename = $text)] $variant = $text,)* }
        }
    };
}

pub(crate) use named;
