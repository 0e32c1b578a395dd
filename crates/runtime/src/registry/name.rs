//! Parser of image references. The library's own parser builds a Unicode regular expression, which takes five megabytes
//! for the lifetime of the process.

use oci_client::Reference;

/// The default registry.
const DEFAULT_REGISTRY: &str = "docker.io";

/// Parses an image reference, or says what is wrong with it.
pub(super) fn parse(name: &str) -> Result<Reference, String> {
    let (rest, digest) = match name.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (name, None),
    };
    let (path, tag) = match rest.rsplit_once(':') {
        // A colon before a slash is that of a port.
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (rest, None),
    };
    let (registry, repository) = match path.split_once('/') {
        Some((host, path)) if is_host(host) => (if host == "index.docker.io" { DEFAULT_REGISTRY } else { host }, path),
        _ => (DEFAULT_REGISTRY, path),
    };
    if !repository.split('/').all(is_part) {
        return Err(format!("{repository:?} is not made of lower case letters, digits and . _ - between slashes"));
    }
    if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
        return Err(format!("{tag:?} is no tag"));
    }
    if let Some(digest) = digest.filter(|digest| !is_digest(digest)) {
        return Err(format!("{digest:?} is no digest"));
    }
    let official = registry == DEFAULT_REGISTRY && !repository.contains('/');
    let repository = if official { format!("library/{repository}") } else { repository.to_owned() };
    let registry = registry.to_owned();
    Ok(match (tag, digest) {
        (Some(tag), Some(digest)) => {
            Reference::with_tag_and_digest(registry, repository, tag.to_owned(), digest.to_owned())
        }
        (None, Some(digest)) => Reference::with_digest(registry, repository, digest.to_owned()),
        (tag, None) => Reference::with_tag(registry, repository, tag.unwrap_or("latest").to_owned()),
    })
}

/// Whether the first part of a name is a registry and not part of a path.
fn is_host(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost"
}

fn is_part(part: &str) -> bool {
    let letter = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit();
    part.starts_with(letter)
        && part.ends_with(letter)
        && part.chars().all(|one| letter(one) || ['.', '_', '-'].contains(&one))
}

fn is_tag(tag: &str) -> bool {
    let word = |one: char| one.is_ascii_alphanumeric() || one == '_';
    tag.len() <= 128 && tag.starts_with(word) && tag.chars().all(|one| word(one) || ['.', '-'].contains(&one))
}

fn is_digest(digest: &str) -> bool {
    let (method, hash) = digest.split_once(':').unwrap_or_default();
    let lengths = [("sha256", 64), ("sha384", 96), ("sha512", 128)];
    lengths.contains(&(method, hash.len())) && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_as_the_library_does() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for name in [
            "busybox".into(),
            "busybox:1.36".into(),
            "nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8".into(),
            "localhost:5000/a/b_c:v1".into(),
            "localhost/x".into(),
            "index.docker.io/library/x".into(),
            "user/image".into(),
            format!("quay.io/a/b@{digest}"),
            format!("quay.io/a/b:tag@{digest}"),
            String::new(),
            "Upper/Case".into(),
            "a//b".into(),
            "nvcr.io/a:".into(),
            "nvcr.io/a:b c".into(),
            "nvcr.io/a@sha256:12".into(),
            "https://nvcr.io/a".into(),
        ] {
            assert_eq!(parse(&name).ok(), name.parse::<Reference>().ok(), "{name}");
        }
    }
}
