//! Upgrade settings: the user's policy, and annotations of the ClusterPolicy or NVIDIADriver for settings without a
//! field.
//!
//! An invalid value halts further nodes with a message; nodes in progress continue with the default.

use std::collections::BTreeMap;

use capstan_api::gpu::upgrade::UpgradePolicy;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::keys::SKIP_DRAIN;
use super::requestor::Requestor;
use super::selector::Selector;

/// Prefix of our annotations.
pub const PREFIX: &str = "capstan.dev/upgrade-";

/// Upgrade settings. Times are in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Maximum number of concurrent upgrades; 0 is unlimited.
    pub max_parallel: usize,
    /// Maximum number of unavailable nodes; unlimited when unset.
    pub max_unavailable: Option<Amount>,
    /// Jobs to wait for.
    pub wait: Option<Wait>,
    /// Eviction of GPU pods; none when unset.
    pub pod_deletion: Option<Eviction>,
    /// Drain if that is not enough; none when unset.
    pub drain: Option<Drain>,
    /// Canary nodes.
    pub canary: Option<Canary>,
    /// Tolerated failures; one more halts the rollout. Without it, a failed node only keeps its slot.
    pub max_failures: Option<Amount>,
    /// Whether to roll back to the last working driver beyond that.
    pub rollback: bool,
    /// Retries of a failed node.
    pub retries: u32,
    /// Initial retry backoff; doubles each time.
    pub backoff: i64,
    /// Timeout of the validator.
    pub validation_timeout: i64,
    /// Timeout of a new driver pod.
    pub restart_timeout: i64,
    /// Restarts of a driver container before it counts as failed.
    pub restart_threshold: u32,
    /// Requestor mode; we cordon and drain ourselves when unset.
    pub requestor: Option<Requestor>,
    /// Why no further node is started, if so.
    pub hold: Option<String>,
}

/// A number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Absolute.
    Count(usize),
    /// A percentage, rounded up.
    Percent(usize),
}

impl Amount {
    /// How many of `total`.
    pub fn of(self, total: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (total * percent).div_ceil(100),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.trim().strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(Self::Percent),
            None => text.trim().parse().ok().map(Self::Count),
        }
    }
}

/// Waiting for jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Which pods.
    pub selector: Selector,
    /// Timeout; none when unset.
    pub timeout: Option<i64>,
    /// The selector as text, for the maintenance operator.
    pub text: String,
}

/// How pods are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Also bare pods, which nothing recreates.
    pub force: bool,
    /// Also pods with emptyDir volumes.
    pub delete_empty_dir: bool,
    /// Timeout; none when unset.
    pub timeout: Option<i64>,
}

/// How a node is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How its pods are evicted.
    pub eviction: Eviction,
    /// Which pods; `None` for an invalid selector, which selects nothing.
    pub selector: Option<Selector>,
    /// The selector as text, for the maintenance operator.
    pub text: String,
}

/// Canary nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canary {
    /// How many.
    pub size: Amount,
    /// Soak time in seconds before the others follow.
    pub soak: i64,
}

/// The drain selector: the user's, without pods that are excluded from drains.
pub fn drain_selector(user: Option<&str>) -> String {
    match user.map(str::trim).filter(|user| !user.is_empty()) {
        Some(user) => format!("{user},{SKIP_DRAIN}!=true"),
        None => format!("{SKIP_DRAIN}!=true"),
    }
}

impl Settings {
    /// From `policy` and the annotations of its object, with the defaults of the API.
    pub fn of(policy: Option<&UpgradePolicy>, annotations: Option<&BTreeMap<String, String>>) -> Self {
        let default = UpgradePolicy::default();
        let policy = policy.unwrap_or(&default);
        let mut read = Reader { annotations, errors: Vec::new() };
        let canary_size = read.amount("canary-size");
        let soak = read.seconds("canary-soak", 0, 0);
        let mut settings = Self {
            max_parallel: policy.max_parallel_upgrades.unwrap_or(1).try_into().unwrap_or(1),
            max_unavailable: Some(read.max_unavailable(policy.max_unavailable.as_ref())),
            wait: read.wait(policy),
            pod_deletion: Some(pod_deletion(policy)),
            drain: read.drain(policy),
            canary: canary_size.filter(|size| *size != Amount::Count(0)).map(|size| Canary { size, soak }),
            max_failures: read.amount("max-failures"),
            rollback: read.flag("rollback"),
            retries: read.number("retries", 3),
            backoff: read.seconds("retry-backoff", 300, 1),
            validation_timeout: read.seconds("validation-timeout", 600, 1),
            restart_timeout: read.seconds("restart-timeout", 3600, 1),
            restart_threshold: read.number("restart-threshold", 10),
            requestor: None,
            hold: None,
        };
        read.unknown();
        settings.hold = Some(read.errors.join("; ")).filter(|errors| !errors.is_empty());
        settings
    }
}

fn timeout(seconds: Option<i64>, default: i64) -> Option<i64> {
    Some(seconds.unwrap_or(default)).filter(|seconds| *seconds > 0)
}

fn pod_deletion(policy: &UpgradePolicy) -> Eviction {
    let spec = policy.pod_deletion.clone().unwrap_or_default();
    Eviction {
        force: spec.force == Some(true),
        delete_empty_dir: spec.delete_empty_dir == Some(true),
        timeout: timeout(spec.timeout_seconds, 300),
    }
}

/// Names of our annotations, without their prefix.
const KNOWN: [&str; 9] = [
    "canary-size",
    "canary-soak",
    "max-failures",
    "rollback",
    "retries",
    "retry-backoff",
    "validation-timeout",
    "restart-timeout",
    "restart-threshold",
];

struct Reader<'a> {
    annotations: Option<&'a BTreeMap<String, String>>,
    errors: Vec<String>,
}

impl Reader<'_> {
    fn read<T>(&mut self, name: &str, fix: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.annotations?.get(&format!("{PREFIX}{name}"))?;
        let value = parse(text.trim());
        if value.is_none() {
            self.errors.push(format!("annotation {PREFIX}{name}: {text:?} cannot be read; write {fix}"));
        }
        value
    }

    fn amount(&mut self, name: &str) -> Option<Amount> {
        self.read(name, "a number of nodes such as 2, or a share such as 5%", Amount::parse)
    }

    fn number(&mut self, name: &str, default: u32) -> u32 {
        self.read(name, "a whole number such as 3", |text| text.parse().ok()).unwrap_or(default)
    }

    fn flag(&mut self, name: &str) -> bool {
        let parse = |text: &str| text.parse().ok();
        self.read(name, "true or false", parse).unwrap_or(false)
    }

    fn seconds(&mut self, name: &str, default: i64, least: i64) -> i64 {
        let parse = |text: &str| duration(text).filter(|seconds| *seconds >= least);
        self.read(name, "a time such as 90s, 15m or 2h", parse).unwrap_or(default)
    }

    fn max_unavailable(&mut self, value: Option<&IntOrString>) -> Amount {
        let amount = match value {
            None => return Amount::Percent(25),
            Some(IntOrString::Int(count)) => usize::try_from(*count).ok().map(Amount::Count),
            Some(IntOrString::String(text)) => Amount::parse(text),
        };
        amount.unwrap_or_else(|| {
            let found = match value {
                Some(IntOrString::Int(count)) => count.to_string(),
                Some(IntOrString::String(text)) => format!("{text:?}"),
                None => String::new(),
            };
            self.errors.push(format!(
                "upgradePolicy.maxUnavailable: {found} cannot be read; write a number of nodes such as 2, or a share such as 25%"
            ));
            Amount::Count(0)
        })
    }

    fn selector(&mut self, field: &str, text: &str) -> Option<Selector> {
        Selector::parse(text)
            .map_err(|error| {
                self.errors.push(format!("upgradePolicy.{field}.podSelector: {error}; write one such as app=job"))
            })
            .ok()
    }

    fn wait(&mut self, policy: &UpgradePolicy) -> Option<Wait> {
        let spec = policy.wait_for_completion.as_ref()?;
        let text = spec.pod_selector.as_deref().map(str::trim).filter(|text| !text.is_empty())?;
        let selector = self.selector("waitForCompletion", text)?;
        Some(Wait { selector, timeout: timeout(spec.timeout_seconds, 0), text: text.into() })
    }

    fn drain(&mut self, policy: &UpgradePolicy) -> Option<Drain> {
        let spec = policy.drain.as_ref().filter(|spec| spec.enable == Some(true))?;
        let text = drain_selector(spec.pod_selector.as_deref());
        let selector = self.selector("drain", &text);
        let eviction = Eviction {
            force: spec.force == Some(true),
            delete_empty_dir: spec.delete_empty_dir == Some(true),
            timeout: timeout(spec.timeout_seconds, 300),
        };
        Some(Drain { eviction, selector, text })
    }

    /// An unknown name is a typo.
    fn unknown(&mut self) {
        let known = |key: &str| KNOWN.contains(&key);
        for key in self.annotations.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix(PREFIX)) {
            if !known(key) {
                let names = KNOWN.join(", ");
                self.errors
                    .push(format!("annotation {PREFIX}{key} is not known; known are {names}: correct or remove it"));
            }
        }
    }
}

/// `90`, `90s`, `15m`, `2h`, `1d`.
fn duration(text: &str) -> Option<i64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(factor)
}
