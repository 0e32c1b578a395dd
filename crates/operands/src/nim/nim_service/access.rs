//! The account of the serving pods, and what it may do.

use capstan_plan::Object;
use capstan_plan::kit::rbac;

use super::{Cx, names};

/// ServiceAccount, Role and RoleBinding of the serving pods. OpenShift lets them start only if their account may use a
/// security context constraint.
pub(super) fn objects(cx: &Cx<'_>) -> [Object; 3] {
    let rule = rbac::use_constraints(vec![names::security_context_constraint(cx).into()]);
    rbac::account_with_role(&names::bare(cx, &cx.name), cx.spec().annotations.clone(), vec![rule])
}
