//! Edits for every GPU container: control device nodes, libraries, programs, configuration, and the hooks for them.

use capstan_cdi::ContainerEdits;

use super::devices::Nodes;
use super::files::Driver;
use super::hooks::{HookName, hook, links};
use super::{Mode, Settings};

const CONTROL_NODES: [&str; 4] = ["/dev/nvidia-modeset", "/dev/nvidia-uvm-tools", "/dev/nvidia-uvm", "/dev/nvidiactl"];

const PROGRAMS: [&str; 8] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
];

/// Graphics libraries with their own versions.
const GRAPHICS: [&str; 5] = [
    "libnvidia-egl-gbm.so.*.*",
    "libnvidia-egl-wayland.so.*.*",
    "libnvidia-egl-wayland2.so.*.*",
    "libnvidia-egl-xcb.so.*.*",
    "libnvidia-egl-xlib.so.*.*",
];

/// Libraries without a version; optional, since images have their own.
const UNVERSIONED: [&str; 11] = [
    "libEGL.so*",
    "libGL.so*",
    "libGLESv1_CM.so*",
    "libGLESv2.so*",
    "libGLX.so*",
    "libGLdispatch.so*",
    "libOpenCL.so*",
    "libOpenGL.so*",
    "libnvidia-api.so*",
    "libnvidia-egl-xcb.so*",
    "libnvidia-egl-xlib.so*",
];

const SHARED: [&str; 9] = [
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
];

const CONFIGURED: [&str; 6] = [
    "OpenCL/vendors/nvidia.icd",
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
    "vulkan/icd.d/nvidia_icd.x86_64.json",
    "vulkan/icd.d/nvidia_icd.aarch64.json",
];

/// Directories of X.Org modules.
const XORG: [&str; 6] = [
    "usr/lib64/xorg/modules/drivers/nvidia_drv.so",
    "usr/lib/xorg/modules/drivers/nvidia_drv.so",
    "usr/lib/x86_64-linux-gnu/nvidia/xorg/nvidia_drv.so",
    "usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so.VERSION",
    "usr/lib/xorg/modules/extensions/libglxserver_nvidia.so.VERSION",
    "usr/lib/x86_64-linux-gnu/nvidia/xorg/libglxserver_nvidia.so.VERSION",
];

/// Container edits common to all devices.
pub(super) fn common(driver: &Driver<'_>, settings: &Settings) -> ContainerEdits {
    let manages = settings.mode == Mode::Management;
    let mut edits = ContainerEdits::default();
    if !manages {
        let mut nodes = Nodes::new(driver.roots, settings);
        CONTROL_NODES.iter().for_each(|path| nodes.add(path));
        edits = nodes.edits();
    }
    let dirs: Vec<String> = driver.dirs.iter().map(|dir| driver.in_container(&dir.path)).collect();
    edits.env.push("NVIDIA_VISIBLE_DEVICES=void".into());
    edits.env.push(format!("NVIDIA_CTK_LIBCUDA_DIR={}", dirs.join(":")));

    let mut patterns = vec![format!("*.so.{}", driver.version), "libnvidia-nvvm70.so.*".to_owned()];
    if !manages {
        patterns.extend(GRAPHICS.map(str::to_owned));
    }
    if settings.flags.explicit_driver_libraries {
        patterns.extend(UNVERSIONED.map(str::to_owned));
    }
    let libraries = driver.libraries(&patterns);
    edits.mounts.extend(driver.library_mounts(&patterns));
    edits.mounts.extend(driver.programs(&PROGRAMS));
    edits.mounts.extend(driver.firmware(settings));
    if !settings.flags.no_ipc {
        edits.mounts.extend(driver.sockets());
    }
    if !manages {
        let shares = ["usr/local/share", "usr/share"];
        edits.mounts.extend(driver.configuration(settings, &shares, "/usr/share", &SHARED));
        let places = ["etc", "usr/local/share", "usr/share"];
        edits.mounts.extend(driver.configuration(settings, &places, "/etc", &CONFIGURED));
        let xorg = XORG.iter().map(|path| driver.roots.here.join(path.replace("VERSION", &driver.version)));
        edits.mounts.extend(xorg.filter_map(|path| driver.mount(&path)));
    }

    let all = library_links(driver, &libraries);
    edits.hooks.extend(links(settings, &all));
    edits.hooks.extend(driver_hooks(driver, settings, &dirs));
    edits
}

/// Symlinks to libraries: sonames, and those that the host has.
fn library_links(driver: &Driver<'_>, libraries: &[std::path::PathBuf]) -> Vec<(String, String)> {
    let glx = format!("libGLX_nvidia.so.{}", driver.version);
    let known = [
        ("libcuda.so.", "libcuda.so.1", "libcuda.so"),
        ("libnvidia-opticalflow.so.", "libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
        ("libGLX_nvidia.so.", glx.as_str(), "libGLX_indirect.so.0"),
    ];
    let mut all: Vec<(String, String)> = Vec::new();
    for path in libraries {
        let Some((dir, name)) = path.parent().zip(path.file_name().and_then(|name| name.to_str())) else { continue };
        for (start, target, link) in known {
            if name.starts_with(start) {
                all.push((target.to_owned(), format!("{}/{link}", driver.in_container(dir))));
            }
        }
    }
    for (target, link) in driver.links(libraries) {
        if all.iter().all(|(_, known)| *known != link) {
            all.push((target, link));
        }
    }
    all
}

fn driver_hooks(driver: &Driver<'_>, settings: &Settings, dirs: &[String]) -> Vec<capstan_cdi::Hook> {
    let compat = vec![format!("--host-driver-version={}", driver.version)];
    let mut folders: Vec<String> = Vec::new();
    if let Some(ldconfig) = &settings.ldconfig {
        folders.extend(["--ldconfig-path".to_owned(), ldconfig.to_string_lossy().into_owned()]);
    }
    for dir in dirs {
        folders.extend(["--folder".to_owned(), dir.clone()]);
    }
    let modification = (settings.mode != Mode::Management)
        .then(|| hook(settings, HookName::DisableDeviceNodeModification, Vec::new()))
        .flatten();
    [hook(settings, HookName::EnableCudaCompat, compat), hook(settings, HookName::UpdateLdcache, folders), modification]
        .into_iter()
        .flatten()
        .collect()
}
