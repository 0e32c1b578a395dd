//! Flags and variables of the validator, as in existing manifests.

use std::path::PathBuf;

use capstan_node::{paths, validation};

use crate::Cx;

/// Flags of the validator.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Component to check
    #[arg(short = 'c', long, env = "COMPONENT")]
    pub component: String,
    /// Node that this runs on
    #[arg(short = 'n', long, env = "NODE_NAME", default_value = "")]
    pub node_name: String,
    /// Namespace of the operator, for pods that the checks start
    #[arg(long, visible_alias = "ns", env = "OPERATOR_NAMESPACE", default_value = "")]
    pub namespace: String,
    /// Retry until the check passes
    #[arg(short = 'w', long, env = "WITH_WAIT", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub with_wait: bool,
    /// Also check with a workload pod
    #[arg(short = 'l', long, env = "WITH_WORKLOAD", num_args = 0..=1, default_value_t = true, default_missing_value = "true")]
    pub with_workload: bool,
    /// Remove all validation files first
    #[arg(short = 'r', long, env = "CLEANUP_ALL", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub cleanup_all: bool,
    /// Directory of validation files
    #[arg(short = 'o', long, env = "OUTPUT_DIR", default_value = validation::DIR)]
    pub output_dir: PathBuf,
    /// Retry interval; a change in the output directory triggers a retry at once
    #[arg(short = 's', long, env = "SLEEP_INTERVAL_SECONDS", default_value_t = 5)]
    pub sleep_interval_seconds: u64,
    /// Deadline, after which the last error is returned; none with --with-wait by default
    #[arg(long, env = "DEADLINE_SECONDS")]
    pub deadline_seconds: Option<u64>,
    /// MIG strategy (ignored, for compatibility)
    #[arg(short = 'm', long, env = "MIG_STRATEGY", default_value = "single")]
    pub mig_strategy: String,
    /// Port of the node status metrics
    #[arg(short = 'p', long, env = "METRICS_PORT", default_value_t = 0)]
    pub metrics_port: u16,
    /// Workload of nodes that have no label for it
    #[arg(short = 'g', long, env = "DEFAULT_GPU_WORKLOAD_CONFIG", default_value = "")]
    pub default_gpu_workload_config: String,
    /// Do not create symlinks in /dev/char
    #[arg(long, env = "DISABLE_DEV_CHAR_SYMLINK_CREATION", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub disable_dev_char_symlink_creation: bool,
    /// Root of the host, as the host sees it
    #[arg(long, env = "HOST_ROOT", default_value = "/")]
    pub host_root: PathBuf,
    /// Where the host's root is mounted here
    #[arg(long, env = "HOST_ROOT_CTR_PATH", default_value = "/host")]
    pub host_root_ctr_path: PathBuf,
    /// Root of a driver container, as the host sees it
    #[arg(long, env = "DRIVER_INSTALL_DIR", default_value = paths::DRIVER_ROOT)]
    pub driver_install_dir: PathBuf,
    /// Where that is mounted here
    #[arg(long, env = "DRIVER_INSTALL_DIR_CTR_PATH", default_value = paths::DRIVER_ROOT)]
    pub driver_install_dir_ctr_path: PathBuf,
    /// Only check that the driver exists, without initialising a GPU
    #[arg(long, env = "DRIVER_VALIDATION_SKIP_GPU_INIT", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub driver_validation_skip_gpu_init: bool,
    /// Level of the cuda check: 1 a kernel, 2 also memory bandwidth, 3 also a short burn and NVLinks
    #[arg(long, env = "CUDA_LEVEL", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub cuda_level: u8,
    /// Seconds of the burn
    #[arg(long, env = "BURN_SECONDS", default_value_t = 5)]
    pub burn_seconds: u64,
    /// Minimum memory bandwidth, in percent of the peak
    #[arg(long, env = "MIN_BANDWIDTH_PERCENT", default_value_t = 60)]
    pub min_bandwidth_percent: u8,
    /// Minimum compute throughput, in percent of the peak
    #[arg(long, env = "MIN_COMPUTE_PERCENT", default_value_t = 50)]
    pub min_compute_percent: u8,
    /// GPUDirect RDMA is wanted, so the network driver is checked
    #[arg(long, env = "GPU_DIRECT_RDMA_ENABLED", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub gpu_direct_rdma_enabled: bool,
    /// The network driver is the host's
    #[arg(long, env = "USE_HOST_MOFED", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub use_host_mofed: bool,
    /// Image of pods that the checks start
    #[arg(long, env = "VALIDATOR_IMAGE", default_value = "")]
    pub validator_image: String,
    /// When to pull it
    #[arg(long, env = "VALIDATOR_IMAGE_PULL_POLICY", default_value = "")]
    pub validator_image_pull_policy: String,
    /// Secrets to pull it with
    #[arg(long, env = "VALIDATOR_IMAGE_PULL_SECRETS", default_value = "", value_delimiter = ',')]
    pub validator_image_pull_secrets: Vec<String>,
    /// Runtime class of those pods
    #[arg(long, env = "VALIDATOR_RUNTIME_CLASS", default_value = "")]
    pub validator_runtime_class: String,
}

impl Options {
    /// Resolves paths with [`Cx::path`].
    pub(super) fn within(self, cx: &Cx) -> Self {
        Self {
            output_dir: cx.path(&self.output_dir),
            host_root_ctr_path: cx.path(&self.host_root_ctr_path),
            driver_install_dir_ctr_path: cx.path(&self.driver_install_dir_ctr_path),
            ..self
        }
    }
}
