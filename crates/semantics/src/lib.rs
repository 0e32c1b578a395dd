//! Kubernetes rules that more than one crate needs: [`names`], [`quantity`], label selectors ([`LabelSelector`]),
//! node selectors ([`node_selector`]), [`taints`] and [`field`] paths. Each is implemented only here. Pure.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod field;
pub mod label_selector;
pub mod names;
pub mod node_selector;
pub mod quantity;
mod requirement;
mod selector_text;
pub mod taints;

pub use label_selector::{InvalidSelector, LabelSelector, Labels};
pub use quantity::Quantity;
