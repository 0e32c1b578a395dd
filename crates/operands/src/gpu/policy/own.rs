//! Operands that run our own image: which image a container gets, and what it runs where others have a shell.

use capstan_api::gpu::component::{Component, Image};
use k8s_openapi::api::core::v1::{Container, SecurityContext};

use super::daemon::Daemon;
use super::snippets::{UNTIL_TOOLKIT, as_root};
use super::{Cx, Outcome};
use crate::gpu::image;

/// The program in our image.
const PROGRAM: &str = "/usr/bin/capstan";

/// What the validator says about the driver, as variables.
const DRIVER_READY: &str = capstan_node::validation::DRIVER_FILE;
const TOOLKIT_READY: &str = capstan_node::validation::TOOLKIT_FILE;

/// Verb for the pods of checks, of which the validator in our image clears all old ones at once.
pub(super) const CLEARS: &str = "deletecollection";

/// The image of a container.
pub(super) struct Found {
    pub(super) path: String,
    /// Whether it is ours, and so runs a role.
    pub(super) own: bool,
}

impl Cx<'_> {
    /// The image for something that our own image can do too.
    pub(super) fn found(&self, image: &Image, variable: &str) -> Outcome<Found> {
        let own = &self.cluster.agent.image;
        match self.image(image, variable) {
            Err(_) if image::is_unnamed(image) && !own.is_empty() => Ok(Found { path: own.clone(), own: true }),
            other => other.map(|path| Found { path, own: false }),
        }
    }

    /// Whether our own image does it.
    pub(super) fn is_own(&self, image: &Image, variable: &str) -> bool {
        self.found(image, variable).is_ok_and(|found| found.own)
    }

    /// Whether our own image checks nodes.
    pub(super) fn validates_itself(&self) -> bool {
        self.is_own(&self.validator().image, "VALIDATOR_IMAGE")
    }

    /// When nodes pull our own image, unless the user says so beside a component.
    pub(super) fn own_pull_policy(&self, image: &Image) -> String {
        let said = image.image_pull_policy.as_deref().filter(|policy| !policy.is_empty());
        match (said, &self.cluster.agent.pull_policy) {
            (None, Some(policy)) => policy.clone(),
            _ => image::pull_policy(image).into(),
        }
    }
}

impl Daemon {
    /// The same as [`Daemon::runs_as`] for what our own image can do too; whether it does.
    pub(super) fn runs_role(
        &mut self,
        cx: &Cx<'_>,
        component: &Component,
        variable: &str,
        role: &capstan_node::Role,
    ) -> Outcome<bool> {
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

    /// Credentials for our own image.
    pub(super) fn pull_own(&mut self, cx: &Cx<'_>) {
        self.pull_with(Some(&cx.cluster.agent.pull_secrets));
    }

    /// The main container starts when the driver was validated, with what the validator found, and with what modules
    /// say that somebody else than the driver's pod has loaded.
    pub(super) fn after_driver(&mut self) {
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

/// The container runs our own program with these words, as root: sockets of the kubelet, CDI specs and what others wait
/// for belong to root.
pub(super) fn own(cx: &Cx<'_>, image: &Image, container: &mut Container, words: &[&str]) {
    container.image = Some(cx.cluster.agent.image.clone());
    container.image_pull_policy = Some(cx.own_pull_policy(image));
    container.command = Some(vec![PROGRAM.into()]);
    container.args = Some(words.iter().map(|word| (*word).to_owned()).collect());
    as_root(container);
}

/// An init container that waits or checks does so with our own image.
pub(super) fn own_check(cx: &Cx<'_>, image: &Image, check: &mut Container) -> Outcome<()> {
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

/// The main container of a validator holds what was proved: it needs root for the files, and no other right.
pub(super) fn own_hold(cx: &Cx<'_>, image: &Image, main: &mut Container, suffix: &str) {
    let suffix = format!("--suffix={suffix}");
    own(cx, image, main, &["agent", "hold", &suffix]);
    main.lifecycle = None;
    main.security_context = Some(SecurityContext {
        allow_privilege_escalation: Some(false),
        run_as_user: Some(0),
        ..SecurityContext::default()
    });
    // Only privileged containers may show mounts both ways.
    main.volume_mounts.iter_mut().flatten().for_each(|mount| mount.mount_propagation = None);
}
