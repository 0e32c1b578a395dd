//! Flags and variables of the exporter, as in existing manifests.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::selector::Selector;
use crate::{Cx, listen_address};

/// Flags of the exporter.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// CSV file of metrics to export; default metrics without it
    #[arg(short = 'f', long, env = "DCGM_EXPORTER_COLLECTORS")]
    pub collectors: Option<PathBuf>,
    /// Address to serve on
    #[arg(short = 'a', long, env = "DCGM_EXPORTER_LISTEN", default_value = ":9400", value_parser = listen_address)]
    pub address: SocketAddr,
    /// Milliseconds between two collecting at the GPUs
    #[arg(short = 'c', long, env = "DCGM_EXPORTER_INTERVAL", default_value_t = 30_000)]
    pub collect_interval: u64,
    /// Add labels of the pod that uses a GPU
    #[arg(short = 'k', long, env = "DCGM_EXPORTER_KUBERNETES", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub kubernetes: bool,
    /// How GPUs are named by the device plugin (both are understood; ignored, for compatibility)
    #[arg(long, env = "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", default_value = "uid")]
    pub kubernetes_gpu_id_type: String,
    /// Add the labels of pods
    #[arg(long, env = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub kubernetes_enable_pod_labels: bool,
    /// Add the UID of pods
    #[arg(long, env = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub kubernetes_enable_pod_uid: bool,
    /// Only pod labels that match one of these patterns
    #[arg(long, env = "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", value_delimiter = ',')]
    pub kubernetes_pod_label_allowlist_regex: Vec<String>,
    /// One line for every pod that shares a GPU
    #[arg(long, env = "KUBERNETES_VIRTUAL_GPUS", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub kubernetes_virtual_gpus: bool,
    /// Also map resource claims to pods
    #[arg(long, env = "KUBERNETES_ENABLE_DRA", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub kubernetes_enable_dra: bool,
    /// Further resources that stand for GPUs
    #[arg(long, env = "NVIDIA_RESOURCE_NAMES", value_delimiter = ',')]
    pub nvidia_resource_names: Vec<String>,
    /// Socket of the kubelet's pod-resources API
    #[arg(
        long,
        env = "DCGM_POD_RESOURCES_KUBELET_SOCKET",
        default_value = capstan_node::paths::POD_RESOURCES_SOCKET
    )]
    pub pod_resources_kubelet_socket: PathBuf,
    /// Which devices: f, g, i, g:0,2-4
    #[arg(short = 'd', long, env = "DCGM_EXPORTER_DEVICES_STR", default_value = "f")]
    pub devices: Selector,
    /// The label names of old versions
    #[arg(short = 'o', long, env = "DCGM_EXPORTER_USE_OLD_NAMESPACE", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub use_old_namespace: bool,
    /// No host name on lines
    #[arg(short = 'n', long, env = "DCGM_EXPORTER_NO_HOSTNAME", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub no_hostname: bool,
    /// Window of the XID count in milliseconds
    #[arg(short = 'x', long, default_value_t = 300_000)]
    pub xid_count_window_size: u64,
    /// Window of the clock event count in milliseconds
    #[arg(long, default_value_t = 300_000)]
    pub clock_events_count_window_size: u64,
    /// Write NVIDIA-H200 for NVIDIA H200
    #[arg(long, visible_alias = "rbmn", env = "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub replace_blanks_in_model_name: bool,
    /// Prometheus web config file: TLS certificate, key and client CA
    #[arg(long, env = "DCGM_EXPORTER_WEB_CONFIG_FILE")]
    pub web_config_file: Option<PathBuf>,
    /// Directory of HPC job files, one per GPU
    #[arg(long, env = "DCGM_HPC_JOB_MAPPING_DIR")]
    pub hpc_job_mapping_dir: Option<PathBuf>,
    /// Node that this runs on: the host name of lines
    #[arg(long, env = "NODE_NAME", default_value = "")]
    pub node_name: String,
}

impl Options {
    /// Resolves paths with [`Cx::path`].
    pub(super) fn within(self, cx: &Cx) -> Self {
        Self {
            collectors: cx.path_of(self.collectors),
            pod_resources_kubelet_socket: cx.path(&self.pod_resources_kubelet_socket),
            web_config_file: cx.path_of(self.web_config_file),
            hpc_job_mapping_dir: cx.path_of(self.hpc_job_mapping_dir),
            ..self
        }
    }
}
