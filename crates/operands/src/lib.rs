//! Plans: one plan function per custom resource, a folder per product. Pure.
//!
//! Start with [`nim::nim_service`], the smallest complete plan, then [`gpu::cluster_policy`], a list of operands, and
//! [`nemo`], five kinds over one model. All use [`capstan_plan::kit`], which also has what servers of any product need: storage, proxies, exposure and probes. A
//! product imports the kit and itself, never another product: `cargo xtask check` enforces it. Shared by all: failure
//! [`causes`], pod status in `pods`, and common conditions.

pub mod causes;
mod common_conditions;
pub mod gpu;
pub mod nemo;
pub mod nim;
mod pods;
