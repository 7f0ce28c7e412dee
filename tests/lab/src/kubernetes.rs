// SPDX-License-Identifier: Apache-2.0
//! The versions of Kubernetes that scenarios run on, and a test of each scenario on each of them.

use std::fmt;

/// A version of Kubernetes. Between the two, kubelets lost the right to read other Nodes, and watches gained initial events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kubernetes {
    /// 1.20, which Debian 12 has the source of.
    V1_20,
    /// 1.36.
    V1_36,
}

impl Kubernetes {
    /// All of them, oldest first.
    pub const ALL: [Self; 2] = [Self::V1_20, Self::V1_36];

    /// The version of which `v1.36.2` is a release, if it is one of these.
    #[must_use]
    pub fn of_release(release: &str) -> Option<Self> {
        let (major_and_minor, _) = release.strip_prefix('v')?.rsplit_once('.')?;
        Self::ALL
            .into_iter()
            .find(|version| version.to_string() == major_and_minor)
    }
}

impl fmt::Display for Kubernetes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::V1_20 => "1.20",
            Self::V1_36 => "1.36",
        })
    }
}

/// Makes a test of each scenario on each version of Kubernetes, in modules `kubernetes_1_20` and `kubernetes_1_36`.
///
/// `available` takes the version and the name of the scenario; it answers whether there is one, or says on standard error why the
/// scenario is skipped. The scenario gets what `of` makes of the version.
#[macro_export]
macro_rules! on_each_kubernetes {
    (@ $module:ident $version:ident, $available:path, $of:path; $($scenario:ident),*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    let version = $crate::kubernetes::Kubernetes::$version;
                    if $available(version, stringify!($scenario)) {
                        super::$scenario($of(version)).await;
                    }
                }
            )*
        }
    };
    ($available:path, $of:path; $($scenario:ident),* $(,)?) => {
        $crate::on_each_kubernetes!(@ kubernetes_1_20 V1_20, $available, $of; $($scenario),*);
        $crate::on_each_kubernetes!(@ kubernetes_1_36 V1_36, $available, $of; $($scenario),*);
    };
}
