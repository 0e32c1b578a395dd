//! Utilisation by pod on a shared GPU: the driver's processes, mapped to pods by their cgroups.
//!
//! The driver reports host PIDs, so this needs the host PID namespace. If no process maps to a pod, every line has the
//! value of the whole device.

use std::collections::BTreeMap;
use std::path::Path;

use capstan_hw::gpu::nvidia::Hardware;

use super::pods::PodFacts;

/// A pod's share of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// SM utilisation in percent.
    pub busy: u32,
    /// Bytes of memory.
    pub bytes: u64,
}

/// Shares of one device by pod UID.
pub(super) type ByPod = BTreeMap<String, Share>;

/// Reads the processes of a device from the driver, and their pods from `/proc/PID/cgroup`.
pub(super) fn by_pod(hardware: &dyn Hardware, uuid: &str, root: &Path) -> ByPod {
    let mut shares = ByPod::new();
    let pod = |pid: u32| {
        let file = root.join(format!("proc/{pid}/cgroup"));
        std::fs::read_to_string(file).ok().and_then(|text| pod_of(&text))
    };
    for (pid, bytes) in hardware.processes(uuid).unwrap_or_default() {
        if let Some(pod) = pod(pid) {
            shares.entry(pod).or_default().bytes += bytes;
        }
    }
    for (pid, busy) in hardware.process_activity(uuid).unwrap_or_default() {
        if let Some(pod) = pod(pid) {
            shares.entry(pod).or_default().busy += busy;
        }
    }
    shares
}

/// Parses the pod UID in a cgroup path: `…/kubepods/burstable/pod<uid>/…`, or `…-pod<uid with underscores>.slice`.
fn pod_of(text: &str) -> Option<String> {
    const LENGTH: usize = 36;
    text.match_indices("pod").find_map(|(at, word)| {
        let uid = text.get(at + word.len()..at + word.len() + LENGTH)?.replace('_', "-");
        let lengths = uid.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        (lengths && uid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())).then_some(uid)
    })
}

/// Replaces pod UIDs by namespace and name; result by device UUID.
pub(super) fn named(
    shares: &BTreeMap<String, ByPod>,
    pods: &BTreeMap<(String, String), PodFacts>,
) -> BTreeMap<String, BTreeMap<(String, String), Share>> {
    let of_pods = |by_pod: &ByPod| {
        let named = pods.iter().filter_map(|(name, facts)| Some((name.clone(), *by_pod.get(&facts.id)?)));
        named.collect::<BTreeMap<_, _>>()
    };
    let by_name = shares.iter().map(|(uuid, by_pod)| (uuid.clone(), of_pods(by_pod)));
    by_name.filter(|(_, named)| !named.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use capstan_hw::fake::{Fake, Recording};
    use proptest::prelude::*;

    const A: &str = "3f2a9c1e-0b5d-4c6e-8f70-1a2b3c4d5e6f";
    const B: &str = "00000000-1111-2222-3333-444444444444";

    #[test]
    fn a_cgroup_says_whose_process_it_is() {
        let cases = [
            (format!("0::/kubepods/burstable/pod{A}/4f5e\n"), Some(A)),
            (format!("0::/kubepods.slice/kubepods-pod{}.slice/cri-1.scope\n", A.replace('-', "_")), Some(A)),
            (format!("12:cpu:/x/podman/y\n1:name=systemd:/kubepods/pod{B}/1\n"), Some(B)),
            ("0::/system.slice/docker.service\n".to_owned(), None),
            ("0::/kubepods/podless\n".to_owned(), None),
        ];
        for (text, wanted) in cases {
            assert_eq!(pod_of(&text).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn processes_are_added_up_by_pod() {
        let root = tempfile::tempdir().expect("a directory");
        for (pid, pod) in [(10, A), (11, A), (12, B)] {
            let dir = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&dir).expect("a directory");
            std::fs::write(dir.join("cgroup"), format!("0::/kubepods/pod{pod}/c\n")).expect("a file");
        }
        let recording = Recording::h200();
        let gpu = recording.inventory.gpus[0].uuid.clone();
        let fake = Fake::new(recording);
        fake.set_processes(&gpu, vec![(10, 1 << 30), (11, 1 << 30), (12, 512 << 20), (99, 7)]);
        fake.set_activity(&gpu, vec![(10, 40), (11, 20), (99, 3)]);
        let shares = by_pod(&fake, &gpu, root.path());
        assert_eq!(shares[A], Share { busy: 60, bytes: 2 << 30 });
        assert_eq!(shares[B], Share { busy: 0, bytes: 512 << 20 });
        assert_eq!(shares.len(), 2, "a process of no pod is nobody's");
        let pods =
            BTreeMap::from([(("n".to_owned(), "a".to_owned()), PodFacts { id: A.into(), ..PodFacts::default() })]);
        let named = named(&BTreeMap::from([(gpu.clone(), shares)]), &pods);
        assert_eq!(named[&gpu][&("n".to_owned(), "a".to_owned())].busy, 60);
    }

    proptest! {
        #[test]
        fn any_cgroup_is_answered(text in "(pod|[0-9a-f_/-]|é){0,60}") {
            let _ = pod_of(&text);
        }
    }
}
