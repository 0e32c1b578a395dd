//! Image selection: the custom resource, else the operator's environment, else our own image if it has a role for the
//! operand.

use std::collections::BTreeMap;

use capstan_api::gpu::component::Image;

/// Environment variables of the operator that set an image.
pub const IMAGES: &[&str] = &[
    "DRIVER_IMAGE",
    "DRIVER_MANAGER_IMAGE",
    "VGPU_MANAGER_IMAGE",
    "CONTAINER_TOOLKIT_IMAGE",
    "DEVICE_PLUGIN_IMAGE",
    "SANDBOX_DEVICE_PLUGIN_IMAGE",
    "KATA_SANDBOX_DEVICE_PLUGIN_IMAGE",
    "DCGM_EXPORTER_IMAGE",
    "DCGM_IMAGE",
    "GFD_IMAGE",
    "VALIDATOR_IMAGE",
    "MIG_MANAGER_IMAGE",
    "GDS_IMAGE",
    "GDRCOPY_IMAGE",
    "VFIO_MANAGER_IMAGE",
    "VGPU_DEVICE_MANAGER_IMAGE",
    "CC_MANAGER_IMAGE",
    "DRA_DRIVER_IMAGE",
];

/// The image reference of `image`, or that of `variable`. `source` is the custom resource in messages.
pub(super) fn path(
    image: &Image,
    variable: &str,
    images: &BTreeMap<String, String>,
    source: &str,
) -> Result<String, String> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (repository, name, version) = (text(&image.repository), text(&image.image), text(&image.version));
    match (repository.as_str(), name.as_str(), version.as_str()) {
        ("", "", "") => images
            .get(variable)
            .filter(|image| !image.is_empty())
            .cloned()
            .ok_or_else(|| format!("empty image path provided through both {source} and ENV {variable}")),
        ("", _, "") => Ok(name),
        ("", ..) | (_, "", _) | (.., "") => Err(format!(
            "invalid image specification: repository, image and version must all be set \
             (repository={repository}, image={name}, version={version})"
        )),
        _ if version.starts_with("sha256:") => Ok(format!("{repository}/{name}@{version}")),
        _ => Ok(format!("{repository}/{name}:{version}")),
    }
}

/// Whether the custom resource sets no image.
pub(super) fn is_unnamed(image: &Image) -> bool {
    [&image.repository, &image.image, &image.version].iter().all(|part| part.as_deref().unwrap_or_default().is_empty())
}

/// `path` with the tag suffix of the operating system; a digest is kept.
pub(super) fn for_system(path: String, tag: &str) -> String {
    if path.contains("sha256:") { path } else { format!("{path}-{tag}") }
}

/// The pull policy: unknown values count as IfNotPresent.
pub(super) fn pull_policy(image: &Image) -> &'static str {
    match image.image_pull_policy.as_deref() {
        Some("Always") => "Always",
        Some("Never") => "Never",
        _ => "IfNotPresent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(repository: &str, image: &str, version: &str, env: &str) -> Result<String, String> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let image =
            Image { repository: some(repository), image: some(image), version: some(version), ..Image::default() };
        path(&image, "X_IMAGE", &BTreeMap::from([("X_IMAGE".into(), env.into())]), "ClusterPolicy CR")
    }

    #[test]
    fn an_image_comes_from_the_resource_then_from_the_environment() {
        assert_eq!(resolve("r.io/a", "i", "v1", "e").unwrap(), "r.io/a/i:v1");
        assert_eq!(resolve("r.io/a", "i", "sha256:ab", "e").unwrap(), "r.io/a/i@sha256:ab");
        assert_eq!(resolve("", "r.io/a/i:v1", "", "e").unwrap(), "r.io/a/i:v1");
        assert_eq!(resolve("", "", "", "e").unwrap(), "e");
    }

    #[test]
    fn half_an_image_is_refused_even_with_one_in_the_environment() {
        for (repository, image, version) in
            [("r", "", ""), ("r", "i", ""), ("", "i", "v"), ("", "", "v"), ("r", "", "v")]
        {
            let error = resolve(repository, image, version, "e").unwrap_err();
            assert!(error.starts_with("invalid image specification: "), "{error}");
        }
        let error = resolve("", "", "", "").unwrap_err();
        assert_eq!(error, "empty image path provided through both ClusterPolicy CR and ENV X_IMAGE");
    }

    #[test]
    fn a_digest_gets_no_system() {
        assert_eq!(for_system("r/driver:580".into(), "ubuntu24.04"), "r/driver:580-ubuntu24.04");
        assert_eq!(for_system("r/driver@sha256:ab".into(), "ubuntu24.04"), "r/driver@sha256:ab");
    }

    #[test]
    fn an_unknown_pull_policy_is_if_not_present() {
        let policy = |text: &str| pull_policy(&Image { image_pull_policy: Some(text.into()), ..Image::default() });
        assert_eq!(
            [policy("Always"), policy("Never"), policy("sometimes"), policy("")],
            ["Always", "Never", "IfNotPresent", "IfNotPresent"]
        );
    }
}
