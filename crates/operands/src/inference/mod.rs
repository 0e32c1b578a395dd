//! Serving models. [`nim_service`] is the first kind; what others share with it lies beside it.

mod claim;
pub mod nim_service;
mod proxy;
