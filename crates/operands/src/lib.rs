//! What runs where: one plan function per custom resource, by domain. Pure.
//!
//! Start with [`inference::nim_service`], the smallest complete one.

pub mod causes;
pub mod gpu;
pub mod inference;
mod shown;
