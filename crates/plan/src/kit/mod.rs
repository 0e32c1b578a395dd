//! Builders that the plans of all products use. Product-independent.
//!
//! Start with [`operand`]: a product is a list of operands, run by [`operand::decide`] within a [`Scope`].
//!
//! | For | Module |
//! |---|---|
//! | what runs on nodes | [`daemon_set`], [`pod`] |
//! | RBAC, SCCs and admission policies | [`rbac`], [`openshift`], [`admission`] |
//! | a server behind a Service | [`expose`], [`probe`], [`storage`], [`proxy`], [`autoscaler`], [`rolling`], [`rollout`] |
//! | Prometheus | [`monitoring`] |

pub mod admission;
pub mod autoscaler;
pub mod daemon_set;
pub mod expose;
pub mod monitoring;
pub mod openshift;
pub mod operand;
pub mod pod;
pub mod probe;
pub mod proxy;
pub mod rbac;
pub mod rolling;
pub mod rollout;
pub mod scope;
pub mod storage;

pub use capstan_semantics::quantity;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVar;
use serde::Serialize;

pub use daemon_set::Daemon;
pub use operand::{Operand, Outcome};
pub use scope::{Defaults, Scope};

/// The managed-by label: caches and selectors find our objects by it.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The instance label: what an object is a part of.
pub const INSTANCE: &str = "app.kubernetes.io/instance";

/// The hash in names and annotations: 32-bit FNV-1a in decimal, with digits mapped to characters without vowels (like
/// Kubernetes' SafeEncodeString).
pub fn hash(text: &str) -> String {
    safe_encode(fnv(text))
}

/// The same of a value as JSON, without allocating it.
pub fn hash_json(value: &impl Serialize) -> String {
    let mut hash = Fnv::default();
    serde_json::to_writer(&mut hash, value).expect("what is hashed is valid JSON");
    safe_encode(hash.0)
}

fn safe_encode(hash: u32) -> String {
    let digits = b"456789bcdf";
    hash.to_string().bytes().map(|digit| char::from(digits[usize::from(digit - b'0')])).collect()
}

/// 32-bit FNV-1a.
pub fn fnv(text: &str) -> u32 {
    let mut hash = Fnv::default();
    hash.add(text.as_bytes());
    hash.0
}

/// An incremental hash.
struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    }
}

impl std::io::Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Merges maps: `first` wins.
pub fn merge_maps(
    first: BTreeMap<String, String>,
    second: Option<&BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut merged = second.cloned().unwrap_or_default();
    merged.extend(first);
    merged
}

/// Merges environments: all of `winners` in order, then the rest of `base`.
pub fn merge_env(base: Vec<EnvVar>, winners: Vec<EnvVar>) -> Vec<EnvVar> {
    let rest = base.into_iter().filter(|one| !winners.iter().any(|winner| winner.name == one.name)).collect::<Vec<_>>();
    winners.into_iter().chain(rest).collect()
}

/// An environment variable with a value.
pub fn env(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar { name: name.into(), value: Some(value.into()), ..EnvVar::default() }
}

/// The wave in which a kind is applied: dependencies first.
pub fn wave(kind: &str) -> u8 {
    match kind {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        "ServiceAccount"
        | "Role"
        | "RoleBinding"
        | "ClusterRole"
        | "ClusterRoleBinding"
        | "SecurityContextConstraints"
        | "RuntimeClass"
        | "PriorityClass" => 2,
        "Deployment"
        | "DaemonSet"
        | "StatefulSet"
        | "Job"
        | "CronJob"
        | "Pod"
        | "LeaderWorkerSet"
        | "InferenceService"
        | "HorizontalPodAutoscaler" => 4,
        _ => 3,
    }
}

/// Whether objects of this kind hold users' data: they are deleted with their owner, never because a field changed.
pub fn holds_data(kind: &str) -> bool {
    kind == "PersistentVolumeClaim"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_the_known_ones() {
        let vectors = [
            ("2269c984-db9a-4b0e-9fd5-86df0ad269f7", "7c6d7bd86b"),
            ("test-nimservice", "6bb8bf548c"),
            ("test-service", "8568b4fb55"),
            ("test-template", "5cb744997d"),
            ("test-claim", "9f8c8d9fb"),
        ];
        for (text, expected) in vectors {
            assert_eq!(hash(text), expected, "{text}");
        }
    }

    #[test]
    fn a_value_has_the_hash_of_its_text() {
        let value = serde_json::json!({"text": "caf\u{e9} \"quoted\"", "list": [1, -2.5, null, true], "empty": {}});
        assert_eq!(hash_json(&value), hash(&value.to_string()));
    }

    #[test]
    fn the_winners_of_an_environment_come_first() {
        let names = |list: Vec<EnvVar>| {
            list.into_iter().map(|one| format!("{}={}", one.name, one.value.unwrap())).collect::<Vec<_>>()
        };
        let merged = merge_env(vec![env("A", "1"), env("B", "1")], vec![env("C", "2"), env("A", "2")]);
        assert_eq!(names(merged), ["C=2", "A=2", "B=1"]);
    }
}
