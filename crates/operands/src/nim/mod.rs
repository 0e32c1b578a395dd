//! Serving models: NIMService, and NIMCache, NIMBuild and NIMPipeline around it. What they share lies beside them.

mod claim;
pub mod layout;
mod manifest;
pub mod nim_build;
pub mod nim_cache;
pub mod nim_pipeline;
pub mod nim_service;
pub(crate) mod pods;
mod profiles;
mod proxy;
mod shown;
