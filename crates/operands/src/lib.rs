//! What runs where: one plan function per custom resource, by domain. Pure.
//!
//! Start with [`nim::nim_service`], the smallest complete one.

pub mod causes;
pub mod gpu;
pub mod nim;
mod shown;
