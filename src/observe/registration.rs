// SPDX-License-Identifier: Apache-2.0
//! Detects the installed distributions, and which file sets the arguments of the kubelet.

use std::path::{Path, PathBuf};

use crate::facts::registration::LabelFileKind;
use crate::observe::environment_file::variables;
use crate::sys::root::Root;

/// The maximum size of a file.
const FILE_MAX: u64 = 16 << 10;

/// The files in which users set `KUBELET_EXTRA_ARGS`: those of the packages for Debian, and for Fedora and SUSE.
const KUBELET_ENVIRONMENT: [&str; 2] = ["/etc/default/kubelet", "/etc/sysconfig/kubelet"];

/// The directories for drop-ins of the kubelet's unit (systemd.unit(5)).
const KUBELET_DROP_INS: [&str; 4] = [
    "/etc/systemd/system/kubelet.service.d",
    "/run/systemd/system/kubelet.service.d",
    "/usr/local/lib/systemd/system/kubelet.service.d",
    "/usr/lib/systemd/system/kubelet.service.d",
];

/// The paths of the kubelet's unit.
const KUBELET_UNITS: [&str; 5] = [
    "/etc/systemd/system/kubelet.service",
    "/run/systemd/system/kubelet.service",
    "/usr/local/lib/systemd/system/kubelet.service",
    "/usr/lib/systemd/system/kubelet.service",
    "/lib/systemd/system/kubelet.service",
];

/// The variable that kubeadm's `10-kubeadm.conf` reserves for the administrator, and that we set.
const EXTRA_ARGS: &str = "KUBELET_EXTRA_ARGS";

/// The files that identify an installed distribution: its configuration, its program, its units.
const TRACES: [(LabelFileKind, &[&str]); 3] = [
    (
        LabelFileKind::Rke2,
        &[
            "/etc/rancher/rke2",
            "/usr/local/bin/rke2",
            "/usr/bin/rke2",
            "/opt/rke2/bin/rke2",
        ],
    ),
    (
        LabelFileKind::K3s,
        &[
            "/etc/rancher/k3s",
            "/usr/local/bin/k3s",
            "/usr/bin/k3s",
            "/opt/bin/k3s",
        ],
    ),
    (LabelFileKind::Kubelet, &KUBELET_UNITS),
];

/// Returns the kinds whose distribution is installed.
pub fn installed(root: &Root) -> Vec<LabelFileKind> {
    let is_here = |traces: &[&str]| traces.iter().any(|path| root.exists(path));
    TRACES
        .iter()
        .filter(|(_, traces)| is_here(traces))
        .map(|(kind, _)| *kind)
        .collect()
}

/// Returns another file that sets the kubelet's extra arguments, even to nothing: an environment file, the unit or a drop-in.
pub fn hidden_by(root: &Root) -> Option<PathBuf> {
    let text = |path: &Path| {
        String::from_utf8_lossy(&root.read(path, FILE_MAX).unwrap_or_default()).into_owned()
    };
    let in_environment = |path: &PathBuf| {
        let variables = variables(&text(path));
        variables.iter().any(|(name, _)| name == EXTRA_ARGS)
    };
    let is_set = |(key, value): (&str, &str)| match key.trim() {
        "Environment" => value.contains(&format!("{EXTRA_ARGS}=")),
        "EnvironmentFile" => {
            let path = PathBuf::from(value.trim().trim_start_matches('-'));
            path != LabelFileKind::Kubelet.path() && in_environment(&path)
        }
        _ => false,
    };
    let in_unit = |path: &PathBuf| {
        let joined = text(path).replace("\\\n", " ");
        let mut settings = joined.lines().filter_map(|line| line.split_once('='));
        settings.any(is_set)
    };
    let drop_ins = |folder: &&str| {
        let folder = Path::new(folder);
        let names = root.list(folder).unwrap_or_default().into_iter();
        let paths = names.map(|name| folder.join(name));
        let is_drop_in = |path: &PathBuf| path.extension().is_some_and(|end| end == "conf");
        paths.filter(is_drop_in).collect::<Vec<_>>()
    };
    let mut environment = KUBELET_ENVIRONMENT.iter().map(PathBuf::from);
    let mut units = KUBELET_UNITS
        .iter()
        .map(PathBuf::from)
        .chain(KUBELET_DROP_INS.iter().flat_map(drop_ins));
    let found = environment.find(in_environment);
    found.or_else(|| units.find(in_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        (dir, root)
    }

    fn write(root: &Root, path: impl AsRef<Path>, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn whoever_else_sets_the_variable_hides_ours_even_with_nothing_in_it() {
        let (_dir, root) = tree();
        write(&root, "/etc/default/kubelet", "# KUBELET_EXTRA_ARGS=x\n");
        let drop_in = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf";
        let usual =
            "[Service]\n# KUBELET_EXTRA_ARGS=\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n";
        write(&root, drop_in, usual);
        assert_eq!(hidden_by(&root), None);
        let other = format!("{usual}Environment=\"A=b\" \"KUBELET_EXTRA_ARGS=--v=2\"\n");
        write(&root, drop_in, &other);
        assert_eq!(hidden_by(&root), Some(drop_in.into()));
        write(&root, "/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=\n");
        let expected = Some(PathBuf::from("/etc/sysconfig/kubelet"));
        assert_eq!(hidden_by(&root), expected);
        write(&root, "/etc/sysconfig/kubelet", "");
        write(&root, drop_in, usual);
        assert_eq!(hidden_by(&root), None);
        // Spaces and continued lines are allowed, and an environment file of any name.
        let other = "/usr/lib/systemd/system/kubelet.service.d/0-first.conf";
        write(&root, "/etc/kubelet.env", "KUBELET_EXTRA_ARGS=--v=2\n");
        for text in [
            "[Service]\nEnvironment = A=b \\\n  KUBELET_EXTRA_ARGS=--v=2\n",
            "[Service]\nEnvironmentFile=-/etc/kubelet.env\n",
        ] {
            write(&root, other, text);
            assert_eq!(hidden_by(&root), Some(other.into()), "{text}");
        }
        let ours = LabelFileKind::Kubelet.path();
        write(&root, ours, "KUBELET_EXTRA_ARGS=--node-labels=a=b\n");
        write(
            &root,
            other,
            &format!("[Service]\nEnvironmentFile=-{}\n", ours.display()),
        );
        assert_eq!(hidden_by(&root), None);
        // Our environment file would override these, wherever they are.
        for unit in [
            "/etc/systemd/system/kubelet.service.d/0-containerd.conf",
            "/usr/lib/systemd/system/kubelet.service",
        ] {
            let text = "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--node-ip=192.0.2.1\n";
            write(&root, unit, text);
            assert_eq!(hidden_by(&root), Some(unit.into()));
            write(&root, unit, "");
        }
    }

    #[test]
    fn what_is_installed_is_recognized_by_its_traces() {
        let (_dir, root) = tree();
        assert_eq!(installed(&root), []);
        write(&root, "/usr/local/bin/k3s", "");
        write(&root, "/usr/lib/systemd/system/kubelet.service", "");
        let expected = [LabelFileKind::K3s, LabelFileKind::Kubelet];
        assert_eq!(installed(&root), expected);
    }
}
