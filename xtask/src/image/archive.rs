//! An image as one tar file: an OCI layout that `docker load` accepts as well.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::files::{Entry, Files};

/// Runtime configuration of the image.
#[derive(Default)]
pub(super) struct Config {
    pub(super) entrypoint: Vec<String>,
    pub(super) command: Vec<String>,
    /// `UID:GID`.
    pub(super) user: String,
    pub(super) labels: BTreeMap<&'static str, String>,
}

/// Writes the image and returns the digest of its manifest.
pub(super) fn write(files: &Files, config: &Config, tag: &str, output: &Path) -> Result<String> {
    let (bytes, digest) = image(files, config, tag)?;
    let folder = output.parent().context("a file lies in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    std::fs::write(output, bytes).with_context(|| format!("cannot write {}", output.display()))?;
    Ok(digest)
}

fn image(files: &Files, config: &Config, tag: &str) -> Result<(Vec<u8>, String)> {
    let mut blobs = Blobs::default();
    let layer = blobs.add("application/vnd.oci.image.layer.v1.tar", layer(files)?);
    let settings = json!({
        "architecture": architecture(), "os": "linux", "created": "1970-01-01T00:00:00Z",
        "config": {
            "User": config.user, "Entrypoint": config.entrypoint, "Cmd": config.command, "Labels": config.labels,
            "WorkingDir": "/", "Env": ["PATH=/usr/bin:/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
        },
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask image"}],
    });
    let settings = blobs.add("application/vnd.oci.image.config.v1+json", settings.to_string().into_bytes());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": settings, "layers": [layer],
    });
    let mut manifest = blobs.add(MANIFEST, manifest.to_string().into_bytes());
    let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    manifest["annotations"] = json!({
        // containerd reads the full name from the first, other tools the tag from the second.
        "io.containerd.image.name": tag,
        "org.opencontainers.image.ref.name": tag.rsplit(':').next().unwrap_or_default(),
    });
    let index = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest],
    });
    let path = |blob: &Value| format!("blobs/{}", blob["digest"].as_str().unwrap_or_default().replace(':', "/"));
    let docker = json!([{"Config": path(&settings), "RepoTags": [tag], "Layers": [path(&layer)]}]);
    let mut out = Files::default();
    for (digest, content) in blobs.0 {
        out.file(&format!("blobs/{}", digest.replace(':', "/")), 0o644, content);
    }
    out.file("index.json", 0o644, index.to_string().into_bytes());
    out.file("manifest.json", 0o644, docker.to_string().into_bytes());
    out.file("oci-layout", 0o644, json!({"imageLayoutVersion": "1.0.0"}).to_string().into_bytes());
    Ok((self::layer(&out)?, digest))
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Blobs by digest.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Adds a blob and returns its descriptor.
    fn add(&mut self, media_type: &str, content: Vec<u8>) -> Value {
        let hash = ring::digest::digest(&ring::digest::SHA256, &content);
        let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = format!("sha256:{hex}");
        let descriptor = json!({"mediaType": media_type, "digest": digest, "size": content.len()});
        self.0.insert(digest, content);
        descriptor
    }
}

/// A reproducible tar file.
fn layer(files: &Files) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, entry) in files.iter() {
        let mut header = tar::Header::new_ustar();
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        let (kind, mode, content, path) = match entry {
            Entry::Folder { mode } => (tar::EntryType::Directory, *mode, [].as_slice(), format!("{path}/")),
            Entry::File { mode, content } => (tar::EntryType::Regular, *mode, content.as_slice(), path.to_owned()),
        };
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, content)?;
    }
    let mut bytes = tar.into_inner()?;
    bytes.flush()?;
    Ok(bytes)
}

/// GOARCH of this machine.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use std::io::Read;

    use super::*;

    fn example() -> (Vec<u8>, String) {
        let mut files = Files::base(65_532);
        // A real program with real libraries, read from the machine each time.
        files.program(Path::new("/bin/sh"), "bin/sh").unwrap();
        let config = Config {
            entrypoint: vec!["/bin/sh".into()],
            user: "65532:65532".into(),
            labels: [("org.opencontainers.image.title", "x".to_owned())].into(),
            ..Config::default()
        };
        image(&files, &config, "example.com/x:1").unwrap()
    }

    fn entries(tar: &[u8]) -> BTreeMap<String, (u64, u64, Vec<u8>)> {
        let mut archive = tar::Archive::new(tar);
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let (mut content, header) = (Vec::new(), entry.header().clone());
            entry.read_to_end(&mut content).unwrap();
            let path = entry.path().unwrap().display().to_string();
            (path, (header.mtime().unwrap(), header.uid().unwrap(), content))
        };
        archive.entries().unwrap().map(read).collect()
    }

    #[test]
    fn two_builds_are_byte_equal() {
        let (first, digest) = example();
        // File times of the machine differ between the two.
        std::fs::write(std::env::temp_dir().join(format!("capstan-image-{}", std::process::id())), &first).unwrap();
        let (second, again) = example();
        assert_eq!(digest, again);
        assert!(first == second, "two builds differ");
        let _ = std::fs::remove_file(std::env::temp_dir().join(format!("capstan-image-{}", std::process::id())));
    }

    #[test]
    fn every_digest_is_that_of_its_content_and_everything_is_reached_from_the_index() {
        let (tar, digest) = example();
        let entries = entries(&tar);
        let json = |path: &str| serde_json::from_slice::<Value>(&entries[path].2).unwrap();
        let blob = |digest: &Value| format!("blobs/{}", digest.as_str().unwrap().replace(':', "/"));
        for (path, (time, user, content)) in &entries {
            assert_eq!((*time, *user), (0, 0), "{path}");
            if let Some(name) = path.strip_prefix("blobs/sha256/").filter(|name| !name.is_empty()) {
                let hash = ring::digest::digest(&ring::digest::SHA256, content);
                let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(hex, name);
            }
        }
        let index = json("index.json");
        assert_eq!(index["manifests"][0]["digest"], digest);
        let manifest = json(&blob(&index["manifests"][0]["digest"]));
        let config = json(&blob(&manifest["config"]["digest"]));
        let layer = &manifest["layers"][0]["digest"];
        assert_eq!(config["rootfs"]["diff_ids"][0], *layer);
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(json("manifest.json")[0]["Layers"][0], blob(layer));
        let inside = self::entries(&entries[&blob(layer)].2);
        for path in ["bin/sh", "etc/passwd", "tmp/"] {
            assert!(inside.contains_key(path), "{path} is not in the image");
        }
        assert!(inside.keys().any(|path| path.contains("libc.so")), "the image has no libc");
    }
}
