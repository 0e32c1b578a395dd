//! What runs where: one plan function per custom resource, a folder per product. Pure.
//!
//! Start with [`nim::nim_service`], the smallest complete plan, then [`gpu::cluster_policy`], a list of operands, and
//! [`nemo`], five kinds over one model. All are
//! written with [`capstan_plan::kit`], which also has what servers of any product need: storage, proxies, exposure and
//! probes. A product imports the kit and itself, never another product: `cargo xtask check` sees to it. Beside the
//! folders lies what all share: [`causes`] of failures, `pods` that do not run, and what every status shows.

pub mod causes;
pub mod gpu;
pub mod nemo;
pub mod nim;
mod pods;
mod shown;
