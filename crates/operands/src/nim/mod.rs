//! Model serving: NIMService, NIMCache, NIMBuild and NIMPipeline, and what they share.

pub mod layout;
mod manifest;
pub mod nim_build;
pub mod nim_cache;
pub mod nim_pipeline;
pub mod nim_service;
mod profiles;
mod proxy;
mod status_report;
