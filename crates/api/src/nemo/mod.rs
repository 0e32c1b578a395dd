//! NeMo microservices (`apps.nvidia.com`): services around the models that NIM kinds serve.
//!
//! All five kinds run one server and share most of their fields: those are in [`NemoServer`], which each spec flattens.
//! What only some of them need is in [`shared`], [`otel`] and [`training`].

mod customizer;
mod datastore;
mod entitystore;
mod evaluator;
pub mod expose;
mod guardrail;
pub mod otel;
mod server;
pub mod shared;
pub mod training;

pub use customizer::{
    DatastoreTools, HuggingFaceSecret, ModelDownloadJobs, NemoCustomizer, NemoCustomizerSpec, NgcSecret, Scheduler,
    SchedulerType, WeightsAndBiases,
};
pub use datastore::{DatastoreSecrets, NemoDatastore, NemoDatastoreSpec, ObjectStoreConfig, ObjectStoreCredentials};
pub use entitystore::{NemoEntitystore, NemoEntitystoreSpec};
pub use evaluator::{ArgoWorkflows, EvaluationImages, LogHandler, NemoEvaluator, NemoEvaluatorSpec};
pub use guardrail::{ConfigStore, NemoGuardrail, NemoGuardrailSpec, NimEndpoint};
pub use server::{NemoServer, NemoStatus};

use crate::crd::Entry;
use crate::resource::Column;

/// API group of the NeMo kinds.
pub const GROUP: &str = "apps.nvidia.com";

/// API version of the NeMo kinds.
const VERSION: &str = "v1alpha1";

/// What `kubectl get` prints for each NeMo kind.
const COLUMNS: &[Column] = &[Column::STATE, Column::AGE_WITH_FORMAT];

/// Kinds of this domain.
pub const KINDS: &[Entry] = &[
    Entry::of::<NemoCustomizerSpec>(),
    Entry::of::<NemoDatastoreSpec>(),
    Entry::of::<NemoEntitystoreSpec>(),
    Entry::of::<NemoEvaluatorSpec>(),
    Entry::of::<NemoGuardrailSpec>(),
];
