//! Log and message patterns of causes: of installers, kernels, runtimes and registries.

use super::Class;

/// Patterns of drivers that do not load, in lower case. The first matching class wins: an installer without headers
/// also reports a failed build.
pub const DRIVER: &[(Class, &[&str])] = &[
    (
        Class::SecureBoot,
        &[
            "required key not available",
            "key was rejected by service",
            "unsigned module loading is restricted",
            "loading of unsigned module is rejected",
        ],
    ),
    (Class::Nouveau, &["nouveau kernel driver is currently in use", "already bound to nouveau", "nouveau is loaded"]),
    (
        Class::Headers,
        &[
            "could not resolve linux kernel version",
            "unable to locate package linux-headers",
            "unable to find a match: kernel-",
            "no match for argument: kernel-",
            "unable to find the kernel source tree",
            "kernel headers for kernel",
            "linux/version.h: no such file",
        ],
    ),
    (
        Class::InUse,
        &[
            "driver is in use",
            "module nvidia is in use",
            "module nvidia_uvm is in use",
            "module nvidia_modeset is in use",
            "failed to unload driver",
        ],
    ),
    (
        Class::Kernel,
        &[
            "unable to build the nvidia kernel module",
            "could not insert 'nvidia': exec format error",
            "could not insert 'nvidia': invalid argument",
            "invalid module format",
            "unsupported kernel version",
            "implicit declaration of function",
            "disagrees about version of symbol",
        ],
    ),
];

/// Patterns of a missing driver, in lower case.
pub const NOT_LOADED: &[&str] = &[
    "couldn't communicate with the nvidia driver",
    "driver not loaded",
    "could not load nvml",
    "libnvidia-ml.so.1: cannot open shared object",
    "driver/library version mismatch",
];

/// Patterns of GPUs whose fabric is not ready, in lower case.
pub const FABRIC: &[&str] = &[
    "system not yet initialized",
    "cuda_error_system_not_ready",
    "fabric manager is not running",
    "failed to start nvidia-fabricmanager",
    "nvidia-fabricmanager.service: failed",
    "nv-fabricmanager: failed",
];

/// Waiting reasons of image pull errors.
pub const UNPULLED: &[&str] =
    &["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"];

/// Patterns of denied registry access, in lower case.
const REFUSED: &[&str] = &[
    "unauthorized",
    "401",
    "403 forbidden",
    "authentication required",
    "no basic auth",
    "access denied",
    "pull access denied",
    "denied:",
];

/// Validation barriers in the order in which a node passes them, and what each waits for.
pub const BARRIERS: &[(&str, &str)] = &[
    ("k8s-driver-manager", "the old driver to be unloaded"),
    ("mofed-validation", "the network driver"),
    ("driver-validation", "the driver"),
    ("toolkit-validation", "the container toolkit"),
    ("cuda-validation", "a first computation"),
    ("plugin-validation", "the device plugin"),
];

/// The position of a barrier; unknown ones come last.
pub fn place(container: &str) -> usize {
    BARRIERS.iter().position(|(barrier, _)| *barrier == container).unwrap_or(BARRIERS.len())
}

/// Whether a line contains one of these, ignoring case.
pub fn says(line: &str, patterns: &[&str]) -> bool {
    let line = line.to_lowercase();
    patterns.iter().any(|pattern| line.contains(pattern))
}

/// Whether a registry denies access, rather than lacking the image.
pub fn is_refused(message: &str) -> bool {
    says(message, REFUSED)
}

/// The registry of an image.
pub fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or(image)
}

/// The unknown runtime handler in a message of containerd or CRI-O.
pub fn handler(message: &str) -> Option<&str> {
    between(message, "no runtime for \"", "\" is configured")
        .or_else(|| between(message, "failed to find runtime handler ", " from").map(|name| name.trim_matches('"')))
}

/// The text between two delimiters.
pub fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}
