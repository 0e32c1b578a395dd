//! Kernel stories: the agent's roles on a real kernel, in a guest that `cargo xtask vm` runs.
//!
//! A story is an ordinary test. On this machine it starts itself in a guest and reports how that went; in the guest it
//! does what it says. Stories of one kind share a guest, one after the other, and leave it as they found it. Where no
//! guest can run, a story says NOT RUN with the reason.

mod containers;
mod guest;
mod here;
mod leftovers;
mod node;
mod pci;
mod power;
mod roles;
mod signing;
mod trouble;
