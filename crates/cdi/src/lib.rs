//! The Container Device Interface as plain data: what a spec holds, what its names may be, when it is valid, and how
//! specs are merged, tidied up and moved to another root. No files: [`Spec::to_text`] and [`Spec::parse`] are where it
//! ends.
//!
//! Start reading at [`Spec`]; `docs/agents.md` says what ours hold.
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

/// Where specs are that someone wrote by hand, and where those that programs keep.
pub const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// What is wrong with a spec or a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name that the format does not allow.
    #[error("'{value}' is no {what}: {why}")]
    Name {
        /// What it should name.
        what: &'static str,
        /// What was given.
        value: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// Two devices of one name.
    #[error("device '{0}' is there twice")]
    Duplicate(String),
    /// A spec without devices says nothing.
    #[error("the spec has no devices")]
    NoDevices,
    /// A device that changes nothing about a container.
    #[error("device '{0}': empty device edits")]
    EmptyDevice(String),
    /// An edit that a runtime would refuse.
    #[error("{place}: {why}")]
    Edit {
        /// Which edit of which device.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// Text that holds no spec.
    #[error("cannot read the spec: {0}")]
    Text(String),
}

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
