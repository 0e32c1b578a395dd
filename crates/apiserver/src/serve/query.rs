//! Query strings.

/// The decoded pairs of a query string, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part after `?`.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
        Self(pairs.collect())
    }

    /// The first value of a key.
    pub(crate) fn first(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// All values of a key.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether a flag is set, as kube-apiserver parses it: any value but empty, `false` and `0`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.first(key).is_some_and(|value| !matches!(value, "" | "0") && !value.eq_ignore_ascii_case("false"))
    }
}

/// Decodes percent encoding, and `+` as a space.
fn decode(text: &str) -> String {
    percent_decode(&text.replace('+', " "))
}

/// Decodes percent encoding.
pub(crate) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_pairs_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch&dryRun=All&dryRun=x&off=false&bad=%zz");
        assert_eq!(query.first("labelSelector"), Some("a=b,c in (d)"));
        assert_eq!(query.all("dryRun").collect::<Vec<_>>(), ["All", "x"]);
        assert!(!query.flag("off") && !query.flag("none"));
        assert_eq!(query.first("bad"), Some("%zz"));
    }
}
