//! The Container Device Interface as plain data: spec types, names, validation, and merging, normalising and relocating
//! specs. No file I/O: [`Spec::to_text`] and [`Spec::parse`] are the boundary.
//!
//! Start reading at [`Spec`]; `docs/agents.md` describes ours.
//! The format: <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>.

mod coherent;
mod edits;
mod names;
mod root;
mod spec;
mod text;
mod validate;
mod version;

pub use coherent::{COHERENT, split_coherent};
pub use names::{Kind, QualifiedName, annotation_key, annotation_value, file_name, is_device_name};
pub use root::{RelativeTo, RootMove};
pub use spec::{ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec};
pub use text::Format;

/// Directories of static and of dynamic specs.
pub const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// An invalid spec or name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name that the specification does not allow.
    #[error("'{value}' is no {what}: {why}")]
    Name {
        /// Kind of name.
        what: &'static str,
        /// The name.
        value: String,
        /// The violated rule.
        why: &'static str,
    },
    /// A duplicate device name.
    #[error("device '{0}' is there twice")]
    Duplicate(String),
    /// A spec without devices.
    #[error("the spec has no devices")]
    NoDevices,
    /// A device without edits.
    #[error("device '{0}': empty device edits")]
    EmptyDevice(String),
    /// An edit that a runtime would reject.
    #[error("{place}: {why}")]
    Edit {
        /// The device and the edit.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// Text that is not a spec.
    #[error("cannot read the spec: {0}")]
    Text(String),
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
