//! Chart of a fleet over time: a sparkline for terminals, an SVG for documents.

use std::fmt::Write;

use super::report::Report;
use super::tally::Sample;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const COLUMNS: usize = 72;

/// A sparkline of a count out of `total`. Non-zero values are always visible.
pub(super) fn line(samples: &[Sample], total: usize, of: impl Fn(&Sample) -> usize) -> String {
    let columns = COLUMNS.min(samples.len());
    let column = |column: usize| {
        let (from, to) = (column * samples.len() / columns, (column + 1) * samples.len() / columns);
        let most = samples[from..to.max(from + 1)].iter().map(&of).max().unwrap_or(0);
        match most {
            0 => ' ',
            most => BLOCKS[(most * BLOCKS.len()).div_ceil(total.max(1)).clamp(1, BLOCKS.len()) - 1],
        }
    };
    (0..columns).map(column).collect()
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
const MARGIN: (f64, f64) = (60.0, 40.0);

/// The same as an SVG, with a curve for each count and one for the budget.
pub fn svg(report: &Report) -> String {
    let (plot, tall) = (WIDTH - MARGIN.0 - 20.0, HEIGHT - 2.0 * MARGIN.1);
    let (last, total) = (report.virtual_seconds.max(1) as f64, report.nodes.max(1) as f64);
    let at =
        |after: f64, count: f64| (MARGIN.0 + after / last * plot, MARGIN.1 + tall - count.min(total) / total * tall);
    let path = |of: fn(&Sample) -> usize| {
        let points = report.samples.iter().map(|sample| {
            let (x, y) = at(sample.after as f64, of(sample) as f64);
            format!("{x:.1},{y:.1}")
        });
        points.collect::<Vec<_>>().join(" ")
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let text = |out: &mut String, x: f64, y: f64, anchor: &str, words: &str| {
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#333\">{words}</text>");
    };
    for part in 0..=4 {
        let count = total * f64::from(part) / 4.0;
        let (x, y) = at(0.0, count);
        let _ = writeln!(out, "<line x1=\"{x}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>", x + plot);
        text(&mut out, x - 6.0, y + 4.0, "end", &format!("{count:.0}"));
        let (x, _) = at(last * f64::from(part) / 4.0, 0.0);
        let hours = last / 3600.0 * f64::from(part) / 4.0;
        text(&mut out, x, HEIGHT - MARGIN.1 + 18.0, "middle", &format!("{hours:.0} h"));
    }
    if let Some(budget) = &report.budget {
        let (x, y) = at(0.0, budget.allowed as f64);
        let (to, dash) = (x + plot, "stroke=\"#999\" stroke-dasharray=\"4 4\"");
        let _ = writeln!(out, "<line x1=\"{x}\" y1=\"{y:.1}\" x2=\"{to:.1}\" y2=\"{y:.1}\" {dash}/>");
    }
    type Count = fn(&Sample) -> usize;
    let lines: [(&str, &str, Count); 4] = [
        ("serving", "#2a7f3f", |sample| sample.serving),
        ("upgraded", "#2b5fb3", |sample| sample.done),
        ("out of use", "#d98014", |sample| sample.cordoned),
        ("failed", "#c0281f", |sample| sample.failed),
    ];
    for (index, (name, colour, of)) in lines.into_iter().enumerate() {
        let points = path(of);
        let _ = writeln!(out, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" points=\"{points}\"/>");
        let x = MARGIN.0 + 120.0 * index as f64;
        let _ = writeln!(out, "<rect x=\"{x:.0}\" y=\"14\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        text(&mut out, x + 18.0, 24.0, "start", name);
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_what_is_not_nothing() {
        let samples: Vec<Sample> = [0, 1, 500, 1000].map(|serving| Sample { serving, ..Sample::default() }).to_vec();
        assert_eq!(line(&samples, 1000, |sample| sample.serving), " ▁▄█");
        assert_eq!(line(&[], 10, |sample| sample.serving), "");
    }
}
