//! What the tests of commands share.

use std::process::Output;

/// The one line with which a command failed.
pub(crate) fn complaint(output: &Output) -> String {
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "more than one line: {text}");
    text
}
