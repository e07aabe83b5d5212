//! Draws lines over the size of a cluster, both axes logarithmic, as SVG that is readable on light and on dark ground.

use std::fmt::Write as _;

/// Width of a panel's drawing, without what is written beside it.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 330.0;
/// Room for the figures on the left, the names on the right, the title above and the axis below.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 46.0;
const BELOW: f64 = 52.0;
/// Names of lines stand at least so far apart.
const APART: f64 = 16.0;

const STYLE: &str = "
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 13px }
.ground { fill: #ffffff }
.grid { stroke: #d8dee4; stroke-width: 1 }
.line { fill: none; stroke-width: 2.2 }
.c0 { stroke: #0969da; fill: #0969da } .c1 { stroke: #bc4c00; fill: #bc4c00 } .c2 { stroke: #1a7f37; fill: #1a7f37 }
.c3 { stroke: #8250df; fill: #8250df } .c4 { stroke: #cf222e; fill: #cf222e } .c5 { stroke: #6e5a00; fill: #6e5a00 }
.name { stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .ground { fill: #0d1117 }
  .grid { stroke: #30363d }
  .c0 { stroke: #58a6ff; fill: #58a6ff } .c1 { stroke: #f0883e; fill: #f0883e } .c2 { stroke: #3fb950; fill: #3fb950 }
  .c3 { stroke: #bc8cff; fill: #bc8cff } .c4 { stroke: #ff7b72; fill: #ff7b72 } .c5 { stroke: #d4b106; fill: #d4b106 }
  .name { stroke: none }
}
text.name { stroke: none }
.line { fill: none }
";

/// A named line.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// Size of the cluster, and a figure above zero.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines that share their axes.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) below: &'static str,
    pub(crate) lines: Vec<Line>,
    /// How a power of ten is written at the left.
    pub(crate) tick: fn(i32) -> String,
}

/// Powers of ten that hold all of some figures: the first and the last.
fn decades(figures: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (least, most) = (figures.clone().fold(f64::MAX, f64::min), figures.fold(0.0, f64::max));
    let (first, last) = (least.log10().floor(), most.log10().ceil());
    (first, last.max(first + 1.0))
}

/// The panels side by side.
pub(crate) fn draw(panels: &[Panel], about: &str) -> String {
    let (width, height) = (panels.len() as f64 * (LEFT + WIDTH + RIGHT), TOP + HEIGHT + BELOW);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{about}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n"
    );
    for (panel, at) in panels.iter().zip(0..) {
        out += &panel.draw(f64::from(at) * (LEFT + WIDTH + RIGHT) + LEFT);
    }
    out + "</svg>\n"
}

impl Panel {
    fn draw(&self, left: f64) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (x0, x1) = decades(points().map(|(x, _)| *x));
        let (y0, y1) = decades(points().map(|(_, y)| *y));
        let across = |x: f64| left + WIDTH * (x - x0) / (x1 - x0);
        let up = |y: f64| TOP + HEIGHT * (y1 - y) / (y1 - y0);
        let mut out = String::new();
        let _: std::fmt::Result = writeln!(out, "<text class=\"title\" x=\"{left}\" y=\"26\">{}</text>", self.title);
        for y in steps(y0, y1) {
            let at = up(f64::from(y));
            let _: std::fmt::Result = writeln!(
                out,
                "<path class=\"grid\" d=\"M{left} {at:.1}h{WIDTH}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                left - 8.0,
                at + 4.0,
                (self.tick)(y)
            );
        }
        for x in steps(x0, x1) {
            let (at, floor) = (across(f64::from(x)), TOP + HEIGHT);
            let _: std::fmt::Result = writeln!(
                out,
                "<path class=\"grid\" d=\"M{at:.1} {TOP}v{HEIGHT}\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{}</text>",
                floor + 18.0,
                super::print::shown(Some(10_f64.powi(x)))
            );
        }
        let _: std::fmt::Result = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            left + WIDTH / 2.0,
            TOP + HEIGHT + 40.0,
            self.below
        );
        for (line, color) in self.lines.iter().zip(0..) {
            let points: Vec<String> = line
                .points
                .iter()
                .map(|(x, y)| format!("{:.1} {:.1}", across(x.log10()), up(y.log10())))
                .collect();
            let _: std::fmt::Result = writeln!(out, "<path class=\"c{color} line\" d=\"M{}\"/>", points.join("L"));
            for point in &points {
                let (x, y) = point.split_once(' ').unwrap_or_default();
                let _: std::fmt::Result = writeln!(out, "<circle class=\"c{color}\" cx=\"{x}\" cy=\"{y}\" r=\"3.2\"/>");
            }
        }
        out + &self.names(left + WIDTH + 10.0, up)
    }

    /// Names of the lines at their ends, moved apart where they would stand upon one another.
    fn names(&self, left: f64, up: impl Fn(f64) -> f64) -> String {
        let ends = self.lines.iter().zip(0..).filter_map(|(line, color)| {
            let (_, y) = line.points.last()?;
            Some((up(y.log10()) + 4.0, color, line.name))
        });
        let mut ends: Vec<(f64, u32, &str)> = ends.collect();
        ends.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let (mut out, mut free) = (String::new(), f64::MIN);
        for (at, color, name) in ends {
            free = at.max(free + APART);
            let _: std::fmt::Result = writeln!(
                out,
                "<text class=\"c{color} name\" x=\"{left}\" y=\"{free:.1}\">{name}</text>"
            );
        }
        out
    }
}

/// Whole numbers from one to the other.
fn steps(first: f64, last: f64) -> impl Iterator<Item = i32> {
    let mut at = first;
    std::iter::from_fn(move || {
        let whole = format!("{at:.0}").parse().ok()?;
        at += 1.0;
        (at <= last + 1.5).then_some(whole)
    })
}
