//! Types that several domains share.
//!
//! NIM and NeMo kinds run one server behind one Service: [`image`] and [`container`] say what runs, [`storage`] where
//! its data lies, [`expose`] and [`epp`] how clients reach it, [`probe`] whether it lives, [`proxy`] how it reaches
//! others, [`scale`] how many copies there are, [`metrics`] who scrapes it. Where the two families differ (the deprecated
//! ingress block, CEL rules) the type is in the domain.

pub mod container;
pub mod epp;
pub mod expose;
pub mod image;
pub mod metrics;
pub mod probe;
pub mod proxy;
pub mod scale;
pub mod scrape;
pub mod storage;
pub mod upgrade;

pub use container::ExtraContainer;
pub use epp::EppConfig;
pub use expose::{BackendRef, Gateway, Router, RouterIngress, ServiceExposure};
pub use image::{Image, PullPolicy};
pub use metrics::{Metrics, ServiceMonitor};
pub use probe::ServerProbe;
pub use proxy::Proxy;
pub use scale::{Autoscaling, HorizontalPodAutoscaling};
pub use storage::PersistentVolumeClaim;
