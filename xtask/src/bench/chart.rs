//! Bar chart as SVG: a group per figure, a bar per operator, scaled to the longest of each group.

use super::report::{Column, format_number};

const WIDTH: usize = 760;
/// Start of bars, and length of the longest.
const LEFT: usize = 290;
const LONGEST: f64 = 390.0;
const BAR: usize = 14;
const GAP: usize = 12;
const TOP: usize = 56;
/// Colours of operators in order; distinguishable on light and dark pages, and by brightness.
const COLOURS: [&str; 4] = ["#2f81f7", "#9aa4b2", "#d29922", "#3fb950"];

/// The chart.
pub(super) fn draw(title: &str, columns: &[Column]) -> String {
    let (mut body, mut y) = (String::new(), TOP);
    let figures = columns.first().map(|column| column.figures.as_slice()).unwrap_or_default();
    for figure in figures.iter().filter(|figure| figure.main) {
        let values: Vec<Option<f64>> = columns.iter().map(|column| column.value(&figure.name)).collect();
        let most = values.iter().flatten().fold(0.0_f64, |most, value| most.max(*value));
        let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
        let middle = y + (values.len() * BAR) / 2 + 4;
        body += &text(LEFT - 10, middle, "end", &figure.name);
        for (value, colour) in values.iter().zip(COLOURS) {
            if let Some(value) = value {
                let long = if most > 0.0 { (value / most * LONGEST).max(1.0) } else { 1.0 };
                body += &format!(
                    "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{long:.1}\" height=\"{}\" fill=\"{colour}\"/>\n",
                    BAR - 2
                );
                let end = LEFT + long as usize + 6;
                body += &text(end, y + BAR - 4, "start", &format!("{}{unit}", format_number(*value)));
            }
            y += BAR;
        }
        y += GAP;
    }
    let mut legend = String::new();
    for (index, (column, colour)) in columns.iter().zip(COLOURS).enumerate() {
        let x = LEFT + index * 150;
        legend += &format!("<rect x=\"{x}\" y=\"32\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n");
        legend += &text(x + 18, 42, "start", &column.name);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#7d8590\">\n<title>{0}</title>\n{1}{legend}{body}</svg>\n",
        escaped(title),
        text(10, 20, "start", title)
    )
}

fn text(x: usize, y: usize, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>\n", escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_a_group_are_as_long_as_their_values() {
        let (mut ours, mut other) = (Column::named("ours"), Column::named("a < b"));
        ours.main("ready", "s", 2.0);
        ours.detail("not shown", "", 1.0);
        other.main("ready", "s", 8.0);
        let svg = draw("A & B", &[ours, other]);
        assert!(svg.contains("width=\"97.5\"") && svg.contains("width=\"390.0\""), "{svg}");
        assert!(svg.contains("A &amp; B") && svg.contains("a &lt; b") && !svg.contains("not shown"), "{svg}");
    }
}
