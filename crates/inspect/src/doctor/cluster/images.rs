//! Images that cannot be pulled: they do not exist, or the registry rejects the credentials.

use capstan_operands::causes::{Cause, Class, words};

use crate::doctor::finding::Finding;
use crate::doctor::index::{Container, Index, Pod, condition, items, reference, short, text};
use crate::snapshot::named;

/// Containers whose image pull failed: pod, container and message.
fn unpulled<'a>(index: &Index<'a>) -> Vec<(Pod<'a>, Container<'a>, &'a str)> {
    let of = |pod: &Pod<'a>| {
        let (container, (_, message)) = pod.containers().find_map(|one| {
            let waiting = one.waiting().filter(|(reason, _)| words::UNPULLED.contains(reason))?;
            Some((one, waiting))
        })?;
        Some((*pod, container, message))
    };
    index.pods.iter().filter_map(of).collect()
}

pub(super) fn pull(index: &Index<'_>) -> Vec<Finding> {
    unpulled(index)
        .into_iter()
        .filter(|(.., message)| !words::is_refused(message))
        .map(|(pod, container, message)| {
            let image = text(&container.value["image"]);
            let fix = if message.contains("not found") || message.contains("manifest unknown") || message.is_empty() {
                "correct repository, image and version where it is named: the ClusterPolicy, the NIMService or the values \
                 of the chart; `capstan versions` lists what is wanted where"
            } else {
                "see that the node reaches the registry, or name a mirror that it reaches: repository in the ClusterPolicy \
                 or the NIMService"
            };
            pod.finding(index, Cause::of(Class::ImagePull, image).what(""))
                .severity(index.weight(&pod))
                .evidence(format!("{}, container {}: {}", pod.reference(), container.name, short(message)))
                .fix(fix)
        })
        .collect()
}

pub(super) fn secret(index: &Index<'_>) -> Vec<Finding> {
    let refused = unpulled(index).into_iter().filter(|(.., message)| words::is_refused(message)).map(|(pod, container, message)| {
        let image = text(&container.value["image"]);
        let registry = words::registry(image);
        let finding = pod
            .finding(index, Cause::of(Class::RegistrySecret, image).what(""))
            .evidence(format!("{}, container {}: {}", pod.reference(), container.name, short(message)));
        let names: Vec<&str> =
            items(&pod.value["spec"]["imagePullSecrets"]).iter().map(|one| text(&one["name"])).collect();
        let finding = match names.as_slice() {
            [] => finding.evidence(format!("{} names no pull secret", pod.reference())),
            names => names.iter().fold(finding, |finding, name| {
                let exists = index.snapshot.find("", "Secret", pod.namespace, name).is_some();
                let state = if exists { "is there" } else { "does not exist" };
                finding.evidence(format!("Secret {}/{name} {state}", pod.namespace))
            }),
        };
        let name = names.first().copied().unwrap_or("ngc-secret");
        finding.fix(format!(
            "kubectl create secret docker-registry {name} -n {} --docker-server={registry} --docker-username='$oauthtoken' \
             --docker-password=<key of NGC>, and name it in imagePullSecrets (pullSecrets of a NIMService)",
            pod.namespace
        ))
    });
    refused.chain(missing(index)).collect()
}

/// Missing objects that NIM services reference, in the words of their condition.
fn missing(index: &Index<'_>) -> Vec<Finding> {
    let services = index.snapshot.of("apps.nvidia.com", "NIMService").iter();
    services
        .filter_map(|service| {
            let reported = condition(service, "MissingReferences").filter(|one| one["status"] == "True")?;
            let name = named(service).0;
            let finding = Finding::about(service, text(&reported["message"]))
                .evidence(format!("{}, condition MissingReferences", reference(service)));
            Some(finding.fix(format!("kubectl create secret generic … -n {name}, or correct the name in the spec")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_only};

    #[test]
    fn an_image_that_is_not_there() {
        let message = "Back-off pulling image \"r.io/toolkit:v9\": ErrImagePull: r.io/toolkit:v9: not found";
        let cluster = Cluster::healthy().unpulled("toolkit", "gpu-1", "nvidia-container-toolkit-ctr", message);
        assert_only(&cluster, "image-pull");
    }

    #[test]
    fn a_registry_that_refuses() {
        let message = "failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized";
        let cluster = Cluster::healthy().unpulled("llama", "gpu-0", "llama-ctr", message);
        let report = assert_only(&cluster, "registry-secret");
        assert!(report.causes[0].evidence.contains(&"Secret nim/ngc-secret does not exist".to_owned()), "{report:?}");
    }

    #[test]
    fn a_secret_that_a_service_names_and_is_not_there() {
        let message = "Secret nim/ngc-api-secret does not exist: create it, and the service goes on by itself";
        let cluster = Cluster::healthy().edit("NIMService", "llama", |service| {
            service["status"]["conditions"] =
                json!([{"type": "MissingReferences", "status": "True", "reason": "MissingReferences", "message": message}]);
        });
        let report = assert_only(&cluster, "registry-secret");
        assert_eq!(report.causes[0].title, format!("NIMService nim/llama: {message}"));
    }
}
