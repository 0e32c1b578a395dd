//! Operands that run our own image: image selection, and the command that replaces a shell script.

use capstan_api::gpu::component::{Component, Image};
use capstan_node::Role;
use capstan_plan::kit::Daemon;
use k8s_openapi::api::core::v1::{Container, SecurityContext};

use super::Outcome;
use super::context::Cx;
use super::daemon::GpuDaemon;
use super::snippets::{UNTIL_TOOLKIT, as_root};
use crate::gpu::image;

/// The binary in our image.
const PROGRAM: &str = "/usr/bin/capstan";

/// Validation files with the driver's environment.
const DRIVER_READY: &str = capstan_node::validation::DRIVER_FILE;
const TOOLKIT_READY: &str = capstan_node::validation::TOOLKIT_FILE;

/// RBAC verb for workload pods: our validator deletes all old ones at once.
pub(crate) const CLEARS: &str = "deletecollection";

/// The image of a container.
pub(crate) struct Found {
    pub(crate) path: String,
    /// Whether it is our own, which runs a role.
    pub(crate) own: bool,
}

impl Cx<'_> {
    /// The image of a component that our own image can replace.
    pub(crate) fn found(&self, image: &Image, variable: &str) -> Outcome<Found> {
        let own = &self.cluster.agent.image;
        match self.image(image, variable) {
            Err(_) if image::is_unnamed(image) && !own.is_empty() => Ok(Found { path: own.clone(), own: true }),
            other => other.map(|path| Found { path, own: false }),
        }
    }

    /// Whether our own image is used.
    pub(crate) fn is_own(&self, image: &Image, variable: &str) -> bool {
        self.found(image, variable).is_ok_and(|found| found.own)
    }

    /// Whether our own image is the validator.
    pub(crate) fn validates_itself(&self) -> bool {
        self.is_own(&self.validator.image, "VALIDATOR_IMAGE")
    }

    /// Pull policy of our own image, unless the component sets it.
    pub(crate) fn own_pull_policy(&self, image: &Image) -> String {
        let user_policy = image.image_pull_policy.as_deref().filter(|policy| !policy.is_empty());
        match (user_policy, &self.cluster.agent.pull_policy) {
            (None, Some(policy)) => policy.clone(),
            _ => image::pull_policy(image).into(),
        }
    }
}

/// Builder methods for our own image.
pub(crate) trait OwnImage {
    /// The same as [`GpuDaemon::runs_as`] for a component that our own image can replace. Returns whether it does.
    fn runs_role(&mut self, cx: &Cx<'_>, component: &Component, variable: &str, role: &Role) -> Outcome<bool>;
    /// Credentials for our own image.
    fn pull_own(&mut self, cx: &Cx<'_>);
    /// The main container waits for driver validation, and gets its results and the state of modules that were not
    /// loaded by the driver pod.
    fn after_driver(&mut self);
}

impl OwnImage for Daemon {
    fn runs_role(&mut self, cx: &Cx<'_>, component: &Component, variable: &str, role: &Role) -> Outcome<bool> {
        let found = cx.found(&component.image, variable)?;
        self.runs_image(&found.path, component);
        if found.own {
            let given = component.args.iter().flatten().map(String::as_str);
            let words: Vec<&str> = ["agent", role.name].into_iter().chain(given).collect();
            self.pull_own(cx);
            own(cx, &component.image, self.main(), &words);
        }
        Ok(found.own)
    }

    fn pull_own(&mut self, cx: &Cx<'_>) {
        self.add_pull_secrets(Some(&cx.cluster.agent.pull_secrets));
    }

    fn after_driver(&mut self) {
        let main = self.main();
        let then = main.args.take().unwrap_or_default();
        let first = [
            "agent",
            "after",
            &format!("--variables={DRIVER_READY}"),
            "--when-loaded=gdrdrv:GDRCOPY_ENABLED",
            "--when-loaded=nvidia_fs:GDS_ENABLED,MOFED_ENABLED",
            "--",
        ];
        main.args = Some(first.into_iter().map(str::to_owned).chain(then).collect());
    }
}

/// Runs our binary with these arguments as root: kubelet sockets, CDI specs and validation files belong to root.
pub(crate) fn own(cx: &Cx<'_>, image: &Image, container: &mut Container, words: &[&str]) {
    container.image = Some(cx.cluster.agent.image.clone());
    container.image_pull_policy = Some(cx.own_pull_policy(image));
    container.command = Some(vec![PROGRAM.into()]);
    container.args = Some(words.iter().map(|word| (*word).to_owned()).collect());
    as_root(container);
}

/// An init container that waits or validates with our own image.
pub(crate) fn own_check(cx: &Cx<'_>, image: &Image, check: &mut Container) -> Outcome<()> {
    let words = check.command.iter().chain(&check.args).flatten().map(String::as_str).collect::<Vec<_>>().join(" ");
    let ready = format!("--file={TOOLKIT_READY}");
    let role: &[&str] = match words.trim_start_matches("sh -c ") {
        "nvidia-validator" => &["agent", capstan_node::VALIDATOR.name],
        UNTIL_TOOLKIT => &["agent", "after", &ready],
        _ => {
            return Err(format!(
                "init container {} needs an image with a shell: name one in spec.validator, or set VALIDATOR_IMAGE",
                check.name
            ));
        }
    };
    own(cx, image, check, role);
    Ok(())
}

/// The main container of a validator owns the validation files: it needs root for these, and no other permission.
pub(crate) fn own_hold(cx: &Cx<'_>, image: &Image, main: &mut Container, suffix: &str) {
    let suffix = format!("--suffix={suffix}");
    own(cx, image, main, &["agent", "hold", &suffix]);
    main.lifecycle = None;
    main.security_context = Some(SecurityContext {
        allow_privilege_escalation: Some(false),
        run_as_user: Some(0),
        ..SecurityContext::default()
    });
    // Only privileged containers may use Bidirectional propagation.
    main.volume_mounts.iter_mut().flatten().for_each(|mount| mount.mount_propagation = None);
}
