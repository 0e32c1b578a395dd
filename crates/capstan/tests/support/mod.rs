//! Shared parts of command tests.

use std::process::Output;

/// The single error line of a failed command.
pub(crate) fn error_line(output: &Output) -> String {
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "more than one line: {text}");
    text
}
