//! The matching language of rules: terms, expressions on single elements, and operators.
//!
//! A rule matches when at least one element of its `matchAny` (if there is any) and all terms of its `matchFeatures`
//! match. A rule with neither matches every node.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// An alternative: matches when all of its terms do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchAny {
    /// Terms that must all match for this alternative to hold.
    pub match_features: Vec<MatchFeature>,
}

/// A demand on one feature of the node; holds when the feature exists and the expressions hold.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchFeature {
    /// Feature to look at, as `<domain>.<feature>`, e.g. `pci.device`; upper and lower case are the same.
    pub feature: String,
    /// Expressions by element name; all must hold, for features with instances all on the same instance.
    pub match_expressions: Option<BTreeMap<String, MatchExpression>>,
    /// Expression on the names of the elements; at least one name must satisfy it.
    pub match_name: Option<MatchExpression>,
}

/// A test of one value.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchExpression {
    /// How the value is compared; decides how many entries `value` needs.
    pub op: MatchOp,
    /// Operands: none, one, two or many, depending on `op`; a wrong count makes the rule fail.
    pub value: Option<Vec<String>>,
    /// How operands that are compared by size are read: as integers when unset, as semantic versions for `version`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
}

/// Operator of an expression. On an absent element all of them are false, except DoesNotExist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MatchOp {
    /// Equal to one of the operands.
    In,
    /// Present, and equal to none of the operands.
    NotIn,
    /// One of the operands, as a regular expression, matches some part of the value.
    InRegexp,
    /// Present, whatever the value.
    #[default]
    Exists,
    /// Absent.
    DoesNotExist,
    /// Greater than the operand.
    Gt,
    /// Greater than or equal to the operand.
    Ge,
    /// Less than the operand.
    Lt,
    /// Less than or equal to the operand.
    Le,
    /// Between the two operands, both excluded.
    GtLt,
    /// Between the two operands, both included.
    GeLe,
    /// Exactly `true`.
    IsTrue,
    /// Exactly `false`.
    IsFalse,
}
