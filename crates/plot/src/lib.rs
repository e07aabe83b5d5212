//! Line charts as SVG: panels side by side, readable on light and dark pages.

use std::fmt::Write as _;

/// Width of a panel, with its labels, in pixels.
const WIDTH: f64 = 460.0;
/// Height of a panel, with its labels, in pixels.
const HEIGHT: f64 = 270.0;
/// Margins around the axes of a panel: left, right, above, below.
const MARGIN: [f64; 4] = [62.0, 14.0, 30.0, 44.0];
/// Height of the title and of each line of the legend, in pixels.
const LINE: f64 = 20.0;
/// Approximate number of marks on an axis.
const TICKS: f64 = 5.0;
/// Colours that people with colour blindness can tell apart (Okabe and Ito, 2008), without the yellow.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888",
];
/// Dash patterns, which tell lines apart where colours cannot.
const DASHES: [&str; 3] = ["", "7 3", "2 3"];
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#222}.title{font-size:15px;font-weight:600}\
    .panel{font-weight:600}.frame{stroke:#999;fill:none}.grid{stroke:#ddd}.page{fill:#fff}\
    @media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#333}.page{fill:#0d1117}}";

/// Scale of an axis: linear or logarithmic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AxisScale {
    /// Linear scale from zero, or from the smallest value if that is below.
    #[default]
    Linear,
    /// Logarithmic scale; values must be above zero, others are left out.
    Log,
}

/// Axis of a panel.
#[derive(Debug, Clone, Default)]
pub struct PlotAxis {
    /// Label of the axis: its quantity and unit.
    pub label: String,
    /// Scale that maps values to positions.
    pub scale: AxisScale,
}

impl PlotAxis {
    /// Linear axis from zero.
    #[must_use]
    pub fn linear(label: &str) -> Self {
        PlotAxis {
            label: label.to_owned(),
            scale: AxisScale::Linear,
        }
    }

    /// Logarithmic axis.
    #[must_use]
    pub fn log(label: &str) -> Self {
        PlotAxis {
            label: label.to_owned(),
            scale: AxisScale::Log,
        }
    }
}

/// Line of a panel. Lines of one name look the same in all panels.
#[derive(Debug, Clone, Default)]
pub struct PlotLine {
    /// Name in the legend.
    pub name: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// One chart.
#[derive(Debug, Clone, Default)]
pub struct PlotPanel {
    /// Title of the chart.
    pub title: String,
    /// Horizontal axis.
    pub x: PlotAxis,
    /// Vertical axis.
    pub y: PlotAxis,
    /// Lines of the chart.
    pub lines: Vec<PlotLine>,
}

/// Draws panels in rows of `columns`, under a title and a legend.
#[must_use]
pub fn render_svg(title: &str, panels: &[PlotPanel], columns: usize) -> String {
    let columns = columns.clamp(1, panels.len().max(1));
    let mut names: Vec<&str> = Vec::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        if !names.contains(&line.name.as_str()) {
            names.push(&line.name);
        }
    }
    let rows = panels.len().div_ceil(columns);
    let top = LINE * 2.0 + LINE * names.len().div_ceil(columns * 2) as f64;
    let (width, height) = (WIDTH * columns as f64, top + HEIGHT * rows as f64);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n"
    );
    text(&mut out, [14.0, LINE], "class=\"title\"", title);
    for (at, name) in names.iter().enumerate() {
        let [column, row] = [at % (columns * 2), at / (columns * 2)].map(|slot| slot as f64);
        let [x, y] = [14.0 + column * WIDTH / 2.0, LINE * 2.0 + row * LINE];
        push_format(
            &mut out,
            format_args!(
                "<line x1=\"{x}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {}/>\n",
                y - 4.0,
                x + 26.0,
                y - 4.0,
                line_style(at)
            ),
        );
        text(&mut out, [x + 32.0, y], "", name);
    }
    for (at, panel) in panels.iter().enumerate() {
        let corner = [(at % columns) as f64 * WIDTH, top + (at / columns) as f64 * HEIGHT];
        draw_panel(&mut out, panel, corner, &names);
    }
    out.push_str("</svg>\n");
    out
}

/// Writing to a `String` cannot fail.
fn push_format(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

fn text(out: &mut String, [x, y]: [f64; 2], attributes: &str, words: &str) {
    // XML cannot represent most control characters.
    let words: String = words
        .chars()
        .map(|c| {
            if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect();
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    push_format(
        out,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{words}</text>\n"),
    );
}

/// Style of the line with this number in the legend.
fn line_style(at: usize) -> String {
    let colour = COLOURS.get(at % COLOURS.len()).copied().unwrap_or_default();
    let dash = DASHES.get(at % DASHES.len()).copied().unwrap_or_default();
    format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"")
}

/// Values of an axis as shares of its length.
struct AxisSpan {
    scale: AxisScale,
    low: f64,
    high: f64,
}

impl AxisSpan {
    fn of(scale: AxisScale, values: impl Iterator<Item = f64>) -> Self {
        let usable = values.filter(|value| value.is_finite() && (scale == AxisScale::Linear || *value > 0.0));
        let ends = usable.fold(None, |ends: Option<(f64, f64)>, value| {
            let (low, high) = ends.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        });
        let (low, high) = ends.unwrap_or((1.0, 1.0));
        let (low, high) = match scale {
            // No value, or all zero: an axis from 0 to 1.
            AxisScale::Linear if low >= 0.0 && high <= 0.0 => (0.0, 1.0),
            AxisScale::Linear => (low.min(0.0), high.max(0.0)),
            AxisScale::Log => (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0)),
        };
        let mut span = AxisSpan { scale, low, high };
        if scale == AxisScale::Linear {
            let step = span.step();
            span.low = (low / step).floor() * step;
            span.high = (high / step).ceil() * step;
        }
        span
    }

    /// Distance of marks: 1, 2 or 5 times a power of ten, for about [`TICKS`] marks on the axis.
    fn step(&self) -> f64 {
        let rough = ((self.high - self.low) / TICKS).max(f64::MIN_POSITIVE);
        let power = 10_f64.powf(rough.log10().floor());
        let factor = [1.0, 2.0, 5.0]
            .into_iter()
            .find(|factor| factor * power >= rough * 0.999);
        factor.unwrap_or(10.0) * power
    }

    /// Position of a value, from 0 to 1; `None` if the axis cannot show it.
    fn share(&self, value: f64) -> Option<f64> {
        let value = match self.scale {
            AxisScale::Linear => value,
            AxisScale::Log => value.log10(),
        };
        let share = (value - self.low) / (self.high - self.low);
        (0.0..=1.0).contains(&share).then_some(share)
    }

    fn ticks(&self) -> Vec<f64> {
        let (first, step) = match self.scale {
            AxisScale::Linear => (self.low, self.step()),
            AxisScale::Log => (self.low, ((self.high - self.low) / TICKS).ceil().max(1.0)),
        };
        let count = ((self.high - self.low) / step + 0.001).floor();
        let at = (0_u32..=64).map(f64::from).take_while(|at| *at <= count);
        let marks = at.map(|at| first + at * step);
        match self.scale {
            AxisScale::Linear => marks.collect(),
            AxisScale::Log => marks.map(|power| 10_f64.powf(power)).collect(),
        }
    }
}

/// Rectangle inside the axes of a panel.
struct PlotFrame {
    left: f64,
    right: f64,
    bottom: f64,
    top: f64,
}

impl PlotFrame {
    fn across(&self, share: f64) -> f64 {
        self.left + share * (self.right - self.left)
    }

    fn up(&self, share: f64) -> f64 {
        self.bottom - share * (self.bottom - self.top)
    }
}

fn draw_panel(out: &mut String, panel: &PlotPanel, [left, top]: [f64; 2], names: &[&str]) {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let x = AxisSpan::of(panel.x.scale, points().map(|point| point.0));
    let y = AxisSpan::of(panel.y.scale, points().map(|point| point.1));
    let [room_left, room_right, room_above, room_below] = MARGIN;
    let frame = PlotFrame {
        left: left + room_left,
        right: left + WIDTH - room_right,
        bottom: top + HEIGHT - room_below,
        top: top + room_above,
    };
    text(out, [frame.left, frame.top - 10.0], "class=\"panel\"", &panel.title);
    for mark in x.ticks() {
        let at = frame.across(x.share(mark).unwrap_or_default());
        grid(out, [at, frame.bottom], [at, frame.top]);
        text(
            out,
            [at, frame.bottom + 16.0],
            "text-anchor=\"middle\"",
            &mark_label(mark),
        );
    }
    for mark in y.ticks() {
        let at = frame.up(y.share(mark).unwrap_or_default());
        grid(out, [frame.left, at], [frame.right, at]);
        text(
            out,
            [frame.left - 6.0, at + 4.0],
            "text-anchor=\"end\"",
            &mark_label(mark),
        );
    }
    push_format(
        out,
        format_args!(
            "<rect class=\"frame\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\n",
            frame.left,
            frame.top,
            frame.right - frame.left,
            frame.bottom - frame.top
        ),
    );
    let middle = [f64::midpoint(frame.left, frame.right), frame.bottom + 34.0];
    text(out, middle, "text-anchor=\"middle\"", &panel.x.label);
    let [side, half] = [left + 14.0, f64::midpoint(frame.top, frame.bottom)];
    let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 {side:.1} {half:.1})\"");
    text(out, [side, half], &turned, &panel.y.label);
    for line in &panel.lines {
        let at = names.iter().position(|name| *name == line.name).unwrap_or_default();
        let places = line
            .points
            .iter()
            .filter_map(|point| Some([frame.across(x.share(point.0)?), frame.up(y.share(point.1)?)]));
        let path: Vec<String> = places.map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        push_format(
            out,
            format_args!("<polyline points=\"{}\" {}/>\n", path.join(" "), line_style(at)),
        );
    }
}

fn grid(out: &mut String, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
    push_format(
        out,
        format_args!("<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"),
    );
}

/// Value of a mark, in few characters.
fn mark_label(value: f64) -> String {
    for (unit, name) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value.abs() >= unit {
            return format!("{}{name}", trimmed(value / unit));
        }
    }
    if value != 0.0 && value.abs() < 1e-3 {
        return format!("{value:.0e}");
    }
    trimmed(value)
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(y: PlotAxis, points: &[(f64, f64)]) -> PlotPanel {
        PlotPanel {
            title: "a < b".to_owned(),
            x: PlotAxis::linear("x"),
            y,
            lines: vec![PlotLine {
                name: "one & two".to_owned(),
                points: points.to_vec(),
            }],
        }
    }

    #[test]
    fn points_lie_where_their_axes_say() {
        let drawn = render_svg(
            "t",
            &[panel(PlotAxis::linear("y"), &[(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)])],
            1,
        );
        let path = drawn.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        let places: Vec<Vec<f64>> = path
            .split(' ')
            .map(|point| point.split(',').map(|number| number.parse().unwrap()).collect())
            .collect();
        let [first, middle, last] = places.as_slice() else {
            panic!("{path}")
        };
        assert!(
            (first[0] - MARGIN[0]).abs() < 0.1 && (last[0] - (WIDTH - MARGIN[1])).abs() < 0.1,
            "{path}"
        );
        assert!((middle[0] - f64::midpoint(first[0], last[0])).abs() < 0.1, "{path}");
        assert!((middle[1] - f64::midpoint(first[1], last[1])).abs() < 0.1, "{path}");
        assert!(first[1] > last[1], "up is less: {path}");
        assert!(drawn.contains("a &lt; b") && drawn.contains("one &amp; two"));
        assert!(!render_svg("\u{1b}[1m\u{ffff}", &[], 1).contains(['\u{1b}', '\u{ffff}']));
    }

    #[test]
    fn marks_are_round_and_cover_the_values() {
        let marks = |scale, values: &[f64]| -> Vec<String> {
            let span = AxisSpan::of(scale, values.iter().copied());
            assert!(values.iter().all(|value| span.share(*value).is_some()));
            span.ticks().into_iter().map(mark_label).collect()
        };
        assert_eq!(
            marks(AxisScale::Linear, &[3.0, 97.0]),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            marks(AxisScale::Linear, &[0.0, 8152.0]),
            ["0", "2k", "4k", "6k", "8k", "10k"]
        );
        assert_eq!(marks(AxisScale::Log, &[1_000.0, 100_000.0]), ["1k", "10k", "100k"]);
        assert_eq!(
            marks(AxisScale::Log, &[0.000_001, 0.001]),
            ["1e-6", "1e-5", "1e-4", "0.001"]
        );
        assert_eq!(marks(AxisScale::Linear, &[0.0]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(marks(AxisScale::Linear, &[-3.0, 1.0]), ["-3", "-2", "-1", "0", "1"]);
    }

    #[test]
    fn values_without_a_place_are_left_out() {
        let drawn = render_svg(
            "t",
            &[panel(PlotAxis::log("y"), &[(1.0, 0.0), (2.0, 10.0), (3.0, f64::NAN)])],
            3,
        );
        assert_eq!(drawn.matches("points=\"").count(), 1);
        let path = drawn.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(path.split(' ').count(), 1, "{path}");
        assert!(render_svg("nothing", &[], 2).ends_with("</svg>\n"));
    }
}
