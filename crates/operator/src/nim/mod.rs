//! NIM: the controllers of NIMServices, NIMCaches, NIMBuilds and NIMPipelines.

mod admission;
mod build;
mod cache;
mod pipeline;
mod service;

use crate::product::{Launch, Product};

/// Registration of the NIM product.
pub static PRODUCT: Product = Product {
    name: "nim",
    kinds: capstan_api::nim::KINDS,
    webhooks: admission::WEBHOOKS,
    granted: Default::default,
    metrics: |_, _| {},
    controllers,
};

fn controllers(launch: &mut Launch<'_>) {
    launch.controller(service::NimServices { kserve: launch.options.kserve_namespace.clone() });
    launch.controller(cache::NimCaches { nodes: launch.nodes.clone() });
    launch.controller(build::NimBuilds);
    launch.controller(pipeline::NimPipelines);
}
