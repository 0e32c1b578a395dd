//! One requirement of a selector: a key, an operator and values.

/// A selector requirement on the value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: Operator,
    pub(crate) values: Vec<String>,
}

/// Operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Operator {
    In,
    NotIn,
    Exists,
    Absent,
    Greater,
    Less,
    /// Not an operator: matches nothing.
    Unknown,
}

impl Operator {
    /// Parses an operator as objects write it.
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::Absent,
            "Gt" => Self::Greater,
            "Lt" => Self::Less,
            _ => Self::Unknown,
        }
    }

    /// Whether a value matches, given the operands.
    pub(crate) fn matches(self, value: Option<&str>, operands: &[String]) -> bool {
        let listed = |value: &str| operands.iter().any(|one| one == value);
        let numbers = || Some((value?.parse::<i64>().ok()?, operands.first()?.parse::<i64>().ok()?));
        match self {
            Self::In => value.is_some_and(listed),
            Self::NotIn => !value.is_some_and(listed),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Greater => numbers().is_some_and(|(value, bound)| value > bound),
            Self::Less => numbers().is_some_and(|(value, bound)| value < bound),
            Self::Unknown => false,
        }
    }
}

impl Requirement {
    pub(crate) fn new(key: &str, operator: Operator, values: Vec<String>) -> Self {
        Self { key: key.to_owned(), operator, values }
    }

    /// Requires that the key has this value.
    pub(crate) fn equal(key: &str, value: &str) -> Self {
        Self::new(key, Operator::In, vec![value.to_owned()])
    }

    /// Whether a value matches.
    pub(crate) fn matches(&self, value: Option<&str>) -> bool {
        self.operator.matches(value, &self.values)
    }
}
