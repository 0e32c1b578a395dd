//! GPUs, a folder per vendor: what vendors have in common is too little for one trait over all of them.

pub mod nvidia;
