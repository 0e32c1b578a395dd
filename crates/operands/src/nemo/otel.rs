//! Variables of OpenTelemetry.

use capstan_api::nemo::otel::{Exporter, ExporterConfig, LogLevel, OpenTelemetry};
use capstan_plan::kit::env;
use k8s_openapi::api::core::v1::EnvVar;

use super::service::{Fault, Weight};

/// The variables, in order.
pub(super) fn environment(otel: Option<&OpenTelemetry>) -> Vec<EnvVar> {
    let Some(otel) = otel.filter(|otel| otel.enabled == Some(true)) else {
        return vec![env("OTEL_SDK_DISABLED", "true")];
    };
    let exporters = otel.exporter_config.clone().unwrap_or_default();
    let ExporterConfig { traces_exporter, metrics_exporter, logs_exporter } = exporters;
    let mut list = vec![
        env("OTEL_EXPORTER_OTLP_ENDPOINT", otel.exporter_otlp_endpoint.clone().unwrap_or_default()),
        env("OTEL_TRACES_EXPORTER", exporter(traces_exporter)),
        env("OTEL_METRICS_EXPORTER", exporter(metrics_exporter)),
        env("OTEL_LOGS_EXPORTER", exporter(logs_exporter)),
        env("OTEL_LOG_LEVEL", level(otel.log_level)),
    ];
    let excluded = otel.excluded_urls.clone().unwrap_or_else(|| vec!["health".into()]).join(",");
    if !excluded.is_empty() {
        list.push(env("OTEL_PYTHON_EXCLUDED_URLS", excluded));
    }
    let logging = (otel.disable_logging != Some(true)).to_string();
    list.push(env("OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED", logging));
    list
}

fn exporter(exporter: Option<Exporter>) -> &'static str {
    match exporter.unwrap_or_default() {
        Exporter::Otlp => "otlp",
        Exporter::Console => "console",
        Exporter::None => "none",
    }
}

/// How a level is written.
pub(super) fn level(level: Option<LogLevel>) -> &'static str {
    match level.unwrap_or_default() {
        LogLevel::Info => "INFO",
        LogLevel::Debug => "DEBUG",
    }
}

/// What is wrong with the field.
pub(super) fn faults(otel: Option<&OpenTelemetry>) -> Vec<Fault> {
    let Some(otel) = otel.filter(|otel| otel.enabled == Some(true)) else { return Vec::new() };
    let exporters = otel.exporter_config.clone().unwrap_or_default();
    let sends = [exporters.traces_exporter, exporters.metrics_exporter, exporters.logs_exporter]
        .into_iter()
        .any(|one| one.unwrap_or_default() == Exporter::Otlp);
    let nowhere = otel.exporter_otlp_endpoint.as_deref().unwrap_or_default().is_empty();
    let message = "spec.otel.exporterOtlpEndpoint is not set, but telemetry is enabled: set the URL of the collector, such \
                   as http://collector:4317, or exporterConfig to console or none";
    (sends && nowhere).then(|| Fault { weight: Weight::Refused, message: message.into() }).into_iter().collect()
}
