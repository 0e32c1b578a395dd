//! The admission webhooks: the checks of the plans, before an object is stored. Products list theirs; the chart's
//! webhook configuration is generated from the lists.

use std::sync::Arc;

use capstan_api::Kind;
use capstan_api::crd::Entry;
use capstan_runtime::Runtime;
use capstan_runtime::webhook::{Operation, Review, Routes, Verdict};
use serde::de::DeserializeOwned;

use crate::{Options, PRODUCTS};

/// A validating webhook: which operations of which kind are reviewed, and how.
#[derive(Clone, Copy)]
pub struct Webhook {
    /// The kind.
    pub kind: Entry,
    /// Suffix of its name, unique among webhooks of the same kind.
    pub suffix: &'static str,
    /// The operations that are reviewed.
    pub operations: &'static [Operation],
    /// The failurePolicy.
    pub failure: Failure,
    /// Timeout of the API server.
    pub timeout_seconds: u8,
    /// Comment in the generated configuration.
    pub comment: &'static str,
    /// The review.
    pub(crate) review: fn(&Runtime, &Options, &Review) -> Verdict,
}

/// The failurePolicy of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// From the values of the chart.
    Configured,
    /// Ignore.
    Ignore,
}

impl Webhook {
    /// A webhook that reviews creations and updates.
    pub(crate) const fn of<K: Kind>(review: fn(&Runtime, &Options, &Review) -> Verdict) -> Self {
        Self {
            kind: Entry::of::<K>(),
            suffix: "",
            operations: &[Operation::Create, Operation::Update],
            failure: Failure::Configured,
            timeout_seconds: 5,
            comment: "",
            review,
        }
    }

    /// Its name in the configuration.
    pub fn name(&self) -> String {
        format!("v{}{}-{}.kb.io", self.kind.kind.to_lowercase(), self.suffix, self.kind.version)
    }

    /// Its URL path: those of the upstream operators, whose configurations may still be installed.
    pub fn path(&self) -> String {
        let Entry { group, version, kind, .. } = self.kind;
        format!("/validate-{}-{version}-{}", group.replace('.', "-"), kind.to_lowercase())
    }
}

/// The webhooks of all products.
pub(crate) fn routes(runtime: &Runtime, options: &Options) -> Routes {
    let options = Arc::new(options.clone());
    let webhooks = PRODUCTS.iter().flat_map(|product| product.webhooks);
    webhooks.fold(Routes::default(), |routes, webhook| {
        let (runtime, options) = (runtime.clone(), options.clone());
        routes.with(&webhook.path(), move |review| (webhook.review)(&runtime, &options, review))
    })
}

/// Whether no check is needed: a finalizer must be removable even if the spec is no longer valid.
pub(crate) fn passes(review: &Review) -> bool {
    let unchanged = review.operation == Operation::Update && review.object["spec"] == review.old_object["spec"];
    let terminating = !review.object["metadata"]["deletionTimestamp"].is_null();
    review.operation == Operation::Delete || unchanged || terminating
}

/// The review of a kind whose check returns only errors.
pub(crate) fn check<K: DeserializeOwned>(review: &Review, check: impl Fn(&K) -> Vec<String>) -> Verdict {
    if passes(review) {
        return Verdict::default();
    }
    let errors = match serde_json::from_value::<K>(review.object.clone()) {
        Ok(object) => check(&object),
        Err(error) => vec![error.to_string()],
    };
    Verdict { errors, warnings: Vec::new() }
}
