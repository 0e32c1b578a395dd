//! The four patch types, server-side apply and managed fields. Pure functions: no I/O, no clock.
//!
//! A write of an object takes one of three ways through here, after its body was decoded and before admission:
//!
//! | request | call |
//! |---|---|
//! | create, update | [`managed::update`] with the new object |
//! | JSON, merge and strategic merge patch | [`patch::apply`], then [`managed::update`] with the result |
//! | server-side apply | [`managed::apply`] |
//!
//! What comes out has its `managedFields` and still has to be defaulted, admitted and validated. At the very end,
//! [`managed::unchanged`] says whether there is anything to store: a write that changed nothing but times is none.
//! Writes of a Scale go through [`scale`].
//!
//! # How ownership works
//!
//! Each entry of `managedFields` is a set of paths: `f:` a field, `k:` an item of a list by its keys, `v:` an item of a
//! set, `.` the container itself. Schemas say where paths end: scalars, and lists and maps that are *atomic*, are leaves.
//! The rules are those of structured-merge-diff, the library of a real server, and of the field manager around it:
//!
//! - An **update** takes every field that it changes or adds from whoever owned it, and what it removes, nobody owns. It
//!   never conflicts.
//! - An **apply** owns exactly what its configuration mentions. Changing what another owns is a conflict, unless forced;
//!   setting it to the value that it has is sharing. What the manager applied before and does not apply now goes, unless
//!   somebody else owns it too. Items of lists keep the order of the configuration, others stay where they were.
//! - A manager is told apart by name, operation, subresource and, for updates, version. Ten updaters are kept apart; of
//!   more, the oldest become `ancient-changes`. What was there before anybody kept track belongs to
//!   `before-first-apply` from the first apply on.
//! - kubectl's annotation of client-side apply is a bridge: fields that still have the value which it records are no
//!   conflict for the manager `kubectl`, and the annotation follows what it applies.
//! - Sending `managedFields: [{}]` (built-in objects: `[]` too) forgets all owners.
//! - What an endpoint throws away it does not record either: [`managed::Reset`].
//!
//! Built-in objects live in Go structs on a real server, where nested structs always exist; [`zero`] knows which.
//!
//! # Reading the code
//!
//! `path` and `set` are the vocabulary, `shape` is the view of a schema, `walk` compares typed values, `combine`
//! merges and prunes them, `updater` decides who owns what, `managed` and `entries` connect that to objects. The stories
//! in `tests/cases/apply` are requests with the answers of a real server.

mod combine;
mod conflict;
mod entries;
pub(crate) mod gofmt;
mod json_patch;
mod last_applied;
pub mod managed;
pub(crate) mod overlay;
pub mod patch;
mod path;
mod reset;
pub mod scale;
mod set;
mod shape;
mod strategic;
mod strategic_list;
mod updater;
mod walk;
pub mod zero;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
