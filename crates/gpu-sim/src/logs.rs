//! Container logs of roles: tracing events become lines.

use std::io::{self, Write};

use capstan_sim::node::LogSink;
use tracing::Dispatch;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// A tracing subscriber that writes to the log of a container.
pub(crate) fn subscriber(log: LogSink) -> Dispatch {
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::INFO).with_writer(Lines(log));
    // The log has the timestamps of the cluster.
    Dispatch::new(lines.without_time().with_target(false).with_ansi(false).finish())
}

struct Lines(LogSink);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Self::Writer {
        Line { log: self.0.clone(), text: Vec::new() }
    }
}

/// One event, written when it is complete.
struct Line {
    log: LogSink,
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.log.line(String::from_utf8_lossy(&self.text));
    }
}
