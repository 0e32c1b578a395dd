//! Field sets: the paths that a manager owns, as a tree whose nodes are flagged as members.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::path::{Element, Path};

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    nodes: BTreeMap<Element, Node>,
}

/// A node of the tree. It is a member, has children, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Whether the path to this node is in the set.
    pub member: bool,
    /// Paths below this node.
    pub children: Set,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl Set {
    /// A set of plain field paths.
    pub(crate) fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(&path.iter().map(|name| Element::field(name)).collect::<Path>());
        }
        set
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The top-level nodes, in order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Element, &Node)> {
        self.nodes.iter()
    }

    /// The node at `element`.
    pub(crate) fn node(&self, element: &Element) -> Option<&Node> {
        self.nodes.get(element)
    }

    /// Inserts a path. The root itself is never owned, so an empty path is ignored.
    pub(crate) fn insert(&mut self, path: &[Element]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut set = self;
        for element in parents {
            set = &mut set.nodes.entry(element.clone()).or_default().children;
        }
        set.nodes.entry(last.clone()).or_default().member = true;
    }

    /// Inserts `node` at `element`, unless it is empty.
    pub(crate) fn put(&mut self, element: Element, node: Node) {
        if !node.is_empty() {
            self.nodes.insert(element, node);
        }
    }

    /// Whether `path` is a member.
    pub(crate) fn has(&self, path: &[Element]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let mut set = self;
        for element in parents {
            match set.nodes.get(element) {
                Some(node) => set = &node.children,
                None => return false,
            }
        }
        set.nodes.get(last).is_some_and(|node| node.member)
    }

    /// Paths of either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.extend(other);
        out
    }

    /// Adds the paths of `other`.
    pub(crate) fn extend(&mut self, other: &Self) {
        for (element, theirs) in &other.nodes {
            match self.nodes.get_mut(element) {
                Some(ours) => {
                    ours.member |= theirs.member;
                    ours.children.extend(&theirs.children);
                }
                None => {
                    self.nodes.insert(element.clone(), theirs.clone());
                }
            }
        }
    }

    /// Whether the sets have a path in common.
    pub(crate) fn intersects(&self, other: &Self) -> bool {
        let (small, large) = if self.nodes.len() < other.nodes.len() { (self, other) } else { (other, self) };
        small.nodes.iter().any(|(element, node)| {
            let Some(other) = large.nodes.get(element) else { return false };
            (node.member && other.member) || node.children.intersects(&other.children)
        })
    }

    /// Paths of both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (element, ours) in &self.nodes {
            if let Some(theirs) = other.nodes.get(element) {
                let member = ours.member && theirs.member;
                out.put(element.clone(), Node { member, children: ours.children.intersection(&theirs.children) });
            }
        }
        out
    }

    /// Paths of this set that are not in `other`.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        let mut out = Self::default();
        for (element, ours) in &self.nodes {
            let node = match other.nodes.get(element) {
                None => ours.clone(),
                Some(theirs) => {
                    Node { member: ours.member && !theirs.member, children: ours.children.difference(&theirs.children) }
                }
            };
            out.put(element.clone(), node);
        }
        out
    }

    /// Paths of this set that are neither in `other` nor below a path in `other`.
    pub(crate) fn without_subtrees(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        let mut out = Self::default();
        for (element, ours) in &self.nodes {
            match other.nodes.get(element) {
                None => out.put(element.clone(), ours.clone()),
                Some(theirs) if theirs.member => {}
                Some(theirs) => {
                    let children = ours.children.without_subtrees(&theirs.children);
                    out.put(element.clone(), Node { member: ours.member, children });
                }
            }
        }
        out
    }

    /// Paths that are a prefix of, or below, one of these prefixes; `None` in a prefix matches any element.
    pub(crate) fn matching(&self, prefixes: &[&[Option<&str>]]) -> Self {
        if prefixes.iter().any(|prefix| prefix.is_empty()) {
            return self.clone();
        }
        let mut out = Self::default();
        for (element, node) in &self.nodes {
            let fits = |first: &Option<&str>| match (first, element) {
                (None, _) => true,
                (Some(name), Element::Field(field)) => name == field,
                _ => false,
            };
            let below: Vec<&[Option<&str>]> =
                prefixes.iter().filter(|prefix| fits(&prefix[0])).map(|prefix| &prefix[1..]).collect();
            if !below.is_empty() {
                out.put(element.clone(), Node { member: node.member, children: node.children.matching(&below) });
            }
        }
        out
    }

    /// All members, parents before children at each level, in the order of kube-apiserver.
    pub(crate) fn paths(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Path, out: &mut Vec<Path>) {
        for element in self.nodes.iter().filter(|(_, node)| node.member).map(|(element, _)| element) {
            out.push(prefix.iter().chain([element]).cloned().collect());
        }
        for (element, node) in self.nodes.iter().filter(|(_, node)| !node.children.is_empty()) {
            prefix.push(element.clone());
            node.children.collect(prefix, out);
            prefix.pop();
        }
    }

    /// Encodes FieldsV1.
    pub(crate) fn encode(&self) -> Value {
        Value::Object(self.encode_into(Map::new()))
    }

    fn encode_into(&self, mut map: Map<String, Value>) -> Map<String, Value> {
        for (element, node) in &self.nodes {
            let mut below = Map::new();
            if node.member && !node.children.is_empty() {
                below.insert(".".into(), json!({}));
            }
            map.insert(element.encode(), Value::Object(node.children.encode_into(below)));
        }
        map
    }

    /// Decodes FieldsV1.
    pub(crate) fn decode(fields: &Value) -> Result<Self, String> {
        let Value::Object(map) = fields else { return Err("FieldsV1 is not an object".into()) };
        let mut set = Self::default();
        for (key, below) in map {
            if key == "." {
                continue;
            }
            let Some(element) = Element::decode(key)? else { continue };
            let children = match below {
                Value::Null => Self::default(),
                below => Self::decode(below)?,
            };
            // A leaf is always a member.
            let member = children.is_empty() || below.get(".").is_some();
            set.put(element, Node { member, children });
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path() -> impl Strategy<Value = Path> {
        let element = prop_oneof![
            "[a-c]".prop_map(Element::Field),
            "[a-b]".prop_map(|name| Element::decode(&format!(r#"k:{{"name":"{name}"}}"#)).unwrap().unwrap()),
            (0..3i64).prop_map(|value| Element::decode(&format!("v:{value}")).unwrap().unwrap()),
        ];
        prop::collection::vec(element, 1..4)
    }

    fn set() -> impl Strategy<Value = Set> {
        prop::collection::vec(path(), 0..8).prop_map(|paths| {
            let mut set = Set::default();
            paths.iter().for_each(|path| set.insert(path));
            set
        })
    }

    proptest! {
        #[test]
        fn sets_survive_fields_v1(set in set()) {
            prop_assert_eq!(Set::decode(&set.encode()), Ok(set));
        }

        #[test]
        fn set_algebra_holds_member_by_member(a in set(), b in set(), path in path()) {
            prop_assert_eq!(a.union(&b).has(&path), a.has(&path) || b.has(&path));
            prop_assert_eq!(a.intersection(&b).has(&path), a.has(&path) && b.has(&path));
            prop_assert_eq!(a.intersects(&b), !a.intersection(&b).is_empty());
            prop_assert_eq!(a.difference(&b).has(&path), a.has(&path) && !b.has(&path));
            let below = (1..=path.len()).any(|length| b.has(&path[..length]));
            prop_assert_eq!(a.without_subtrees(&b).has(&path), a.has(&path) && !below);
        }

        #[test]
        fn no_node_is_without_meaning(a in set(), b in set()) {
            for set in [a.union(&b), a.intersection(&b), a.difference(&b), a.without_subtrees(&b)] {
                prop_assert_eq!(set.is_empty(), set.paths().is_empty());
                let mut again = Set::default();
                set.paths().iter().for_each(|path| again.insert(path));
                prop_assert_eq!(again, set);
            }
        }
    }

    #[test]
    fn a_member_with_children_has_a_dot() {
        let mut set = Set::of_fields(&[&["metadata", "labels"], &["metadata", "labels", "app"], &["spec", "a"]]);
        assert_eq!(set.encode(), json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:a": {}}}));
        set.insert(&[]);
        assert_eq!(set.paths().len(), 3);
    }

    #[test]
    fn prefixes_keep_what_leads_to_them() {
        let set = Set::of_fields(&[&["spec"], &["spec", "a", "b"], &["spec", "c", "d"], &["status"]]);
        let kept = set.matching(&[&[Some("spec"), None, Some("b")]]);
        assert_eq!(kept, Set::of_fields(&[&["spec"], &["spec", "a", "b"]]));
    }
}
