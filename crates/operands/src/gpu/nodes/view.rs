//! View of a node: borrowed from the cache, never copied.

use capstan_plan::Tree;

use crate::gpu::fleet::ContainerRuntime;

pub use capstan_plan::Entries;

/// The fields that labelling reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: Entries<'a>,
    /// Its annotations.
    pub annotations: Entries<'a>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Its container runtime.
    pub runtime: Option<ContainerRuntime>,
}

impl<'a> Node<'a> {
    /// View of a cached node.
    pub fn of<T: Tree>(node: &'a T) -> Self {
        let metadata = node.at("metadata");
        Self {
            name: metadata.at("name").text().unwrap_or_default(),
            labels: metadata.at("labels").entries(),
            annotations: metadata.at("annotations").entries(),
            unschedulable: node.at("spec").at("unschedulable").is_true(),
            runtime: ContainerRuntime::of(node),
        }
    }
}
