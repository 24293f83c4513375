//! The sweeps as a picture: samples/s above, bytes below, by micro-batch size. All axes are logarithmic, so that a
//! doubling is the same step everywhere: a curve that has gone flat is past its knee.

use std::fmt::Write;

use super::report::{AdapterSweep, TuneReport};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const LEGEND: f64 = 20.0;
const TITLE: f64 = 44.0;
const SPEED: f64 = 250.0;
const BYTES: f64 = 170.0;
const GAP: f64 = 46.0;
const BELOW: f64 = 52.0;

/// Colours that differ in lightness, too (Okabe and Ito 2008), for a light and a dark ground.
const COLOURS: [(&str, &str); 6] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff9d4d"),
    ("#009e73", "#33cfa3"),
    ("#a64d85", "#e39bc4"),
    ("#8a6d00", "#f0d64a"),
    ("#555555", "#bbbbbb"),
];

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#222}.ground{fill:#fff}.grid{stroke:#ddd}\
.axis{stroke:#888;fill:none}.limit{stroke:#c00;stroke-dasharray:6 4}text.limit{fill:#c00;stroke:none}\
.line{fill:none;stroke-width:2}.hollow{fill:#fff}.title{font-size:14px;font-weight:600}";
const DARK: &str = "text{fill:#ddd}.ground,.hollow{fill:#16191d}.grid{stroke:#333}.axis{stroke:#888}\
.limit{stroke:#ff6b6b}text.limit{fill:#ff6b6b;stroke:none}";

/// A logarithmic axis from value to place.
struct Axis {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let part = (value / self.from).ln() / (self.to / self.from).ln();
        self.start + part * (self.end - self.start)
    }
}

/// `report` as an SVG document, readable on a light and on a dark ground.
pub fn plot(report: &TuneReport) -> String {
    let top = TITLE + LEGEND * report.adapters.len() as f64;
    let height = top + SPEED + GAP + BYTES + BELOW;
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"Samples per second and bytes by micro-batch size\">\n<style>{STYLE}"
    );
    let colours = |dark: bool| -> String {
        let colour = |i: usize| if dark { COLOURS[i].1 } else { COLOURS[i].0 };
        (0..COLOURS.len()).map(|i| format!(".s{i}{{stroke:{0}}}.f{i}{{fill:{0}}}", colour(i))).collect()
    };
    let _ = writeln!(svg, "{}@media (prefers-color-scheme:dark){{{DARK}{}}}</style>", colours(false), colours(true));
    let _ = writeln!(svg, "<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>");
    text(&mut svg, LEFT, 24.0, "title", "start", "Samples per second and memory by micro-batch size");
    for (index, adapter) in report.adapters.iter().enumerate() {
        let y = TITLE + LEGEND * index as f64;
        let series = index % COLOURS.len();
        let knee = adapter.sweep.knee.map_or_else(|| "nothing ran".to_owned(), |k| format!("knee at {k}"));
        let _ = writeln!(svg, "<circle class=\"f{series}\" cx=\"{}\" cy=\"{}\" r=\"5\"/>", LEFT + 5.0, y - 4.0);
        text(&mut svg, LEFT + 18.0, y, "", "start", &escaped(&format!("{}: {knee}", adapter.label)));
    }

    let most = report.adapters.iter().flat_map(|a| &a.sweep.sizes).map(|s| s.rows).max().unwrap_or(1).max(2);
    let x = Axis { from: 1.0, to: most as f64, start: LEFT + 12.0, end: WIDTH - RIGHT - 12.0 };
    let speeds = |a: &AdapterSweep| -> Vec<(usize, f64)> {
        a.sweep.sizes.iter().filter_map(|s| Some((s.rows, s.ran()?.samples_per_second))).collect()
    };
    let all: Vec<f64> = report.adapters.iter().flat_map(|a| speeds(a).into_iter().map(|p| p.1)).collect();
    let (from, to) = decimal_range(&all);
    let y = Axis { from, to, start: top + SPEED, end: top };
    panel(&mut svg, &x, &y, most, "samples/s", &decimal_ticks(from, to));
    for (index, adapter) in report.adapters.iter().enumerate() {
        let points = speeds(adapter);
        line(&mut svg, &x, &y, index, &points);
        if let Some(&(rows, speed)) = points.iter().find(|p| Some(p.0) == adapter.sweep.knee) {
            let (cx, cy, series) = (x.at(rows as f64), y.at(speed), index % COLOURS.len());
            let _ = writeln!(
                svg,
                "<circle class=\"line s{series}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"9\"><title>the knee</title></circle>"
            );
        }
    }

    let top = top + SPEED + GAP;
    let bytes = |a: &AdapterSweep| -> Vec<(usize, f64, bool)> {
        let point = |s: &super::measured::Size| Some((s.rows, s.predicted_bytes? as f64, s.ran().is_some()));
        a.sweep.sizes.iter().filter_map(point).collect()
    };
    let mut all: Vec<f64> = report.adapters.iter().flat_map(|a| bytes(a).into_iter().map(|p| p.1)).collect();
    let limit = report.memory_limit.map(|l| l as f64).filter(|l| all.iter().any(|b| b * 16.0 > *l));
    all.extend(limit);
    let (from, to) = binary_range(&all);
    let y = Axis { from, to, start: top + BYTES, end: top };
    panel(&mut svg, &x, &y, most, "bytes on the device", &binary_ticks(from, to));
    if let Some(limit) = limit {
        let (left, right, at) = (x.start, x.end, y.at(limit));
        let _ = writeln!(svg, "<line class=\"limit\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        text(&mut svg, left, at - 5.0, "limit", "start", "memory limit");
    }
    for (index, adapter) in report.adapters.iter().enumerate() {
        let points = bytes(adapter);
        let ran: Vec<_> = points.iter().filter(|p| p.2).map(|p| (p.0, p.1)).collect();
        line(&mut svg, &x, &y, index, &ran);
        for (rows, bytes, _) in points.iter().filter(|p| !p.2) {
            let (cx, cy, series) = (x.at(*rows as f64), y.at(*bytes), index % COLOURS.len());
            let _ = writeln!(
                svg,
                "<circle class=\"hollow s{series}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4\" stroke-width=\"2\"><title>{rows} \
                 rows: did not run</title></circle>"
            );
        }
    }
    let middle = (x.start + x.end) / 2.0;
    text(
        &mut svg,
        middle,
        height - 10.0,
        "",
        "middle",
        "samples of a micro-batch (ring: the knee; hollow: did not run)",
    );
    svg.push_str("</svg>\n");
    svg
}

/// Frame, grid and labels.
fn panel(svg: &mut String, x: &Axis, y: &Axis, most: usize, title: &str, ticks: &[(f64, String)]) {
    let (left, right) = (x.start - 12.0, x.end + 12.0);
    for (value, label) in ticks {
        let at = y.at(*value);
        let _ = writeln!(svg, "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        text(svg, left - 8.0, at + 4.0, "", "end", label);
    }
    let powers = usize::BITS - most.leading_zeros();
    let every = powers.div_ceil(14).max(1);
    for power in (0..powers).step_by(every as usize) {
        let at = x.at(f64::from(power).exp2());
        let _ =
            writeln!(svg, "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{}\" y2=\"{}\"/>", y.end, y.start);
        text(svg, at, y.start + 18.0, "", "middle", &(1_u64 << power).to_string());
    }
    let _ = writeln!(
        svg,
        "<rect class=\"axis\" x=\"{left}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
        y.end,
        right - left,
        y.start - y.end
    );
    let (at, middle) = (18.0, (y.start + y.end) / 2.0);
    let _ = writeln!(
        svg,
        "<text x=\"{at}\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 {at} {middle})\">{title}</text>"
    );
}

fn line(svg: &mut String, x: &Axis, y: &Axis, index: usize, points: &[(usize, f64)]) {
    let series = index % COLOURS.len();
    let places: Vec<_> = points.iter().map(|(rows, v)| (x.at(*rows as f64), y.at(*v))).collect();
    let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(svg, "<polyline class=\"line s{series}\" points=\"{}\"/>", path.join(" "));
    for ((x, y), (rows, value)) in places.iter().zip(points) {
        let _ = writeln!(
            svg,
            "<circle class=\"f{series}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{rows} rows: {value:.0}</title></circle>"
        );
    }
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, anchor: &str, words: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// 1, 2 and 5 times powers of ten.
fn decimal_steps(decades: std::ops::RangeInclusive<i32>) -> impl Iterator<Item = f64> {
    decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(decade)))
}

/// The least and the largest value; something to draw where there is none.
fn extent(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
    if least.is_finite() { (least, values.iter().copied().fold(least, f64::max)) } else { (1.0, 2.0) }
}

/// The decimal steps around the values.
fn decimal_range(values: &[f64]) -> (f64, f64) {
    let (least, most) = extent(values);
    let steps = || decimal_steps(least.log10().floor() as i32..=most.log10().ceil() as i32 + 1);
    let below = steps().filter(|s| *s <= least).last().unwrap_or(least);
    (below, steps().find(|s| *s > 1.05 * most).unwrap_or(2.0 * most))
}

/// The powers of two around the values.
fn binary_range(values: &[f64]) -> (f64, f64) {
    let (least, most) = extent(values);
    (least.log2().floor().exp2(), (1.001 * most).log2().ceil().exp2())
}

fn decimal_ticks(from: f64, to: f64) -> Vec<(f64, String)> {
    let steps = decimal_steps(from.log10().floor() as i32..=to.log10().ceil() as i32);
    let label = |v: f64| match v {
        _ if v >= 1e6 => format!("{} M", v / 1e6),
        _ if v >= 1e4 => format!("{} k", v / 1e3),
        _ => format!("{v}"),
    };
    steps.filter(|v| *v >= from * 0.999 && *v <= to * 1.001).map(|v| (v, label(v))).collect()
}

fn binary_ticks(from: f64, to: f64) -> Vec<(f64, String)> {
    let (first, last) = (from.log2().round() as u32, to.log2().round() as u32);
    let every = (last - first).div_ceil(6).max(1) as usize;
    let label = |power: u32| match power {
        30.. => format!("{} GiB", 1_u64 << (power - 30)),
        20.. => format!("{} MiB", 1_u64 << (power - 20)),
        10.. => format!("{} KiB", 1_u64 << (power - 10)),
        _ => format!("{} B", 1_u64 << power),
    };
    (first..=last).step_by(every).map(|power| (f64::from(power).exp2(), label(power))).collect()
}
