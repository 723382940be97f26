//! The layout of a plot: the template [`TEMPLATE`] draws the parts that are placed here.

use lockstep_common::Failure;
use serde::Serialize;

use super::demand::Demand;
use super::figures::Pair;
use super::parameters::Side;
use super::template::render;
use crate::format::thousands;
use crate::json::Decimal;

/// The size of a plot, and the room for labels in it.
pub const WIDTH: f64 = 790.0;
pub const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 44.0;

/// A plot over loads.
#[derive(Serialize)]
pub struct Chart {
    label: &'static str,
    width: Decimal<0>,
    height: Decimal<0>,
    /// The ends and the middle of the horizontal axis, and its height.
    left: Decimal<0>,
    right: Decimal<0>,
    middle: Decimal<0>,
    bottom: Decimal<0>,
    ticks: Vec<Tick>,
    /// What the horizontal axis counts.
    axis: &'static str,
    loads: Vec<Load>,
    bars: Vec<Bar>,
    curves: Vec<Curve>,
    legend: Vec<Line>,
}

/// What draws a chart; colours come from the page or picture that it stands in.
const TEMPLATE: &str = include_str!("chart.svg");

impl Chart {
    /// The elements of a picture, without the `svg` around them.
    pub fn draw(&self) -> Result<String, Failure> {
        render(TEMPLATE, self)
    }
}

/// A line across, with its value.
#[derive(Serialize)]
struct Tick {
    y: Decimal<1>,
    value: String,
}

/// A load at its place on the horizontal axis.
#[derive(Serialize)]
struct Load {
    x: Decimal<1>,
    number: usize,
}

#[derive(Serialize)]
struct Bar {
    side: &'static str,
    x: Decimal<1>,
    y: Decimal<1>,
    width: Decimal<1>,
    height: Decimal<1>,
    middle: Decimal<1>,
    value: String,
    title: String,
}

#[derive(Serialize)]
struct Curve {
    side: &'static str,
    name: &'static str,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct Point {
    x: Decimal<1>,
    y: Decimal<1>,
    title: String,
}

/// A line of the legend, at the right.
#[derive(Serialize)]
struct Line {
    side: &'static str,
    text: String,
    y: Decimal<0>,
}

impl Line {
    fn new(side: Side, text: String, number: usize) -> Line {
        Line {
            side: side.name(),
            text,
            y: Decimal(TOP + 16.0 + 20.0 * number as f64),
        }
    }
}

/// A place among `count` on the horizontal axis, in the middle of its share.
fn across(index: usize, count: usize) -> f64 {
    LEFT + (index as f64 + 0.5) / count as f64 * (WIDTH - LEFT - RIGHT)
}

/// A vertical axis.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    /// From zero to a round value that is not below the highest, with lines across.
    fn from_zero(highest: f64) -> (Axis, Vec<f64>) {
        let step = round_step(highest / 4.0);
        let ticks: Vec<f64> = (0..6)
            .map(|n| rounded(f64::from(n) * step))
            .take_while(|tick| *tick < highest + step)
            .collect();
        let axis = Axis {
            low: 0.0,
            high: ticks.last().copied().unwrap_or(highest).max(highest),
            logarithmic: false,
        };
        (axis, ticks)
    }

    fn down(&self, value: f64) -> f64 {
        let at = |value: f64| match self.logarithmic {
            true => value.log10(),
            false => value,
        };
        let share = (at(value) - at(self.low)) / (at(self.high) - at(self.low));
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    /// A plot without figures: lines across with their values, and the loads below.
    fn chart(&self, label: &'static str, ticks: &[f64], pairs: &[(Demand, &Pair)]) -> Chart {
        let tick = |&tick: &f64| Tick {
            y: Decimal(self.down(tick)),
            value: match tick >= 1000.0 {
                true => thousands(tick),
                false => tick.to_string(),
            },
        };
        let load = |(index, (demand, _)): (usize, &(Demand, &Pair))| Load {
            x: Decimal(across(index, pairs.len())),
            number: demand.number(),
        };
        Chart {
            label,
            width: Decimal(WIDTH),
            height: Decimal(HEIGHT),
            left: Decimal(LEFT),
            right: Decimal(WIDTH - RIGHT),
            middle: Decimal((LEFT + WIDTH - RIGHT) / 2.0),
            bottom: Decimal(HEIGHT - BOTTOM),
            ticks: ticks.iter().map(tick).collect(),
            axis: pairs.first().map_or("", |(demand, _)| demand.axis()),
            loads: pairs.iter().enumerate().map(load).collect(),
            bars: Vec::new(),
            curves: Vec::new(),
            legend: Vec::new(),
        }
    }
}

/// CPU time per handshake: two bars for each load. `None` without figures.
pub fn bars(pairs: &[(Demand, &Pair)]) -> Option<Chart> {
    let milliseconds = |pair: &Pair| {
        [
            (Side::Stock, pair.cost(Side::Stock) * 1e3),
            (Side::Lockstep, pair.cost(Side::Lockstep) * 1e3),
        ]
    };
    let highest = pairs
        .iter()
        .flat_map(|(_, pair)| milliseconds(pair).map(|(_, value)| value))
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    if highest <= 0.0 {
        return None;
    }
    let (axis, ticks) = Axis::from_zero(highest);
    let mut chart = axis.chart("CPU milliseconds per handshake", &ticks, pairs);
    let width = ((WIDTH - LEFT - RIGHT) / pairs.len() as f64 * 0.3).min(48.0);
    for (index, &(demand, pair)) in pairs.iter().enumerate() {
        for (place, (side, value)) in milliseconds(pair).into_iter().enumerate() {
            if !value.is_finite() {
                continue;
            }
            let x = across(index, pairs.len()) + (place as f64 - 1.0) * width;
            let (y, bottom, label) = (axis.down(value), axis.down(0.0), side.label());
            chart.bars.push(Bar {
                side: side.name(),
                x: Decimal(x),
                y: Decimal(y),
                width: Decimal(width - 3.0),
                height: Decimal(bottom - y),
                middle: Decimal(x + width / 2.0 - 1.5),
                value: format!("{value:.2}"),
                title: format!("{label}, {}: {value:.4} ms", demand.words()),
            });
        }
    }
    let sides = [Side::Stock, Side::Lockstep].into_iter().enumerate();
    chart.legend = sides
        .map(|(number, side)| Line::new(side, side.label().to_owned(), number))
        .collect();
    Some(chart)
}

/// What is served each second: a line for each side. `None` without figures.
pub fn throughput(label: &'static str, pairs: &[(Demand, &Pair)]) -> Option<Chart> {
    let per_second = |pair: &Pair, side| match side {
        Side::Stock => pair.stock.per_second(),
        Side::Lockstep => pair.lockstep.per_second(),
    };
    let sides = [Side::Stock, Side::Lockstep];
    let highest = pairs
        .iter()
        .flat_map(|(_, pair)| sides.map(|side| per_second(pair, side)))
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    if highest <= 0.0 {
        return None;
    }
    let (axis, ticks) = Axis::from_zero(highest);
    let mut chart = axis.chart(label, &ticks, pairs);
    for (number, side) in sides.into_iter().enumerate() {
        let points = pairs
            .iter()
            .enumerate()
            .filter_map(|(index, &(demand, pair))| {
                let value = per_second(pair, side);
                value.is_finite().then(|| Point {
                    x: Decimal(across(index, pairs.len())),
                    y: Decimal(axis.down(value)),
                    title: format!(
                        "{}, {}: {} per second",
                        side.label(),
                        demand.words(),
                        thousands(value)
                    ),
                })
            });
        chart.curves.push(Curve {
            side: side.name(),
            name: "rate",
            points: points.collect(),
        });
        let text = side.label().to_owned();
        chart.legend.push(Line::new(side, text, number));
    }
    Some(chart)
}

/// Latencies: the median as a line, the 99th percentile dashed. `None` without figures.
pub fn lines(pairs: &[(Demand, &Pair)]) -> Option<Chart> {
    let curves = [
        (Side::Stock, "p50", 0.5),
        (Side::Stock, "p99", 0.99),
        (Side::Lockstep, "p50", 0.5),
        (Side::Lockstep, "p99", 0.99),
    ];
    let value = |pair: &Pair, side, share| match side {
        Side::Stock => pair.stock.latency(share) * 1e3,
        Side::Lockstep => pair.lockstep.latency(share) * 1e3,
    };
    let all: Vec<f64> = pairs
        .iter()
        .flat_map(|(_, pair)| curves.map(|(side, _, share)| value(pair, side, share)))
        .filter(|value| value.is_finite() && *value > 0.0)
        .collect();
    if all.is_empty() {
        return None;
    }
    let lowest = all.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = all.iter().copied().fold(0.0, f64::max);
    let (first, last) = (lowest.log10().floor() as i32, highest.log10().ceil() as i32);
    let last = last.max(first + 1);
    let ticks: Vec<f64> = (first..=last)
        .map(|power| rounded(10f64.powi(power)))
        .collect();
    let axis = Axis {
        low: 10f64.powi(first),
        high: 10f64.powi(last),
        logarithmic: true,
    };
    let mut chart = axis.chart("milliseconds", &ticks, pairs);
    for (number, (side, name, share)) in curves.into_iter().enumerate() {
        let points = pairs
            .iter()
            .enumerate()
            .filter_map(|(index, &(demand, pair))| {
                let value = value(pair, side, share);
                value.is_finite().then(|| Point {
                    x: Decimal(across(index, pairs.len())),
                    y: Decimal(axis.down(value)),
                    title: format!("{} {name}, {}: {value:.3} ms", side.label(), demand.words()),
                })
            });
        chart.curves.push(Curve {
            side: side.name(),
            name,
            points: points.collect(),
        });
        let dashes = if name == "p99" { " (dashed)" } else { "" };
        let text = format!("{} {name}{dashes}", side.label());
        chart.legend.push(Line::new(side, text, number));
    }
    Some(chart)
}

/// 1, 2 or 5 times a power of ten, not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * power);
    steps
        .into_iter()
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// Without what floating point adds to round numbers.
fn rounded(value: f64) -> f64 {
    format!("{value:.9}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshakes::figures::Figures;

    #[test]
    fn axes_have_round_steps() {
        for (least, step) in [
            (0.13, 0.2),
            (0.5, 0.5),
            (0.51, 1.0),
            (7.0, 10.0),
            (20.0, 20.0),
        ] {
            assert!((round_step(least) - step).abs() < 1e-9, "{least}");
        }
        assert_eq!(rounded(0.1 + 0.2), 0.3);
    }

    #[test]
    fn throughput_has_a_line_for_each_side_from_zero_to_a_round_number() {
        let pair = |stock: usize, lockstep: usize| {
            let figures = |handshakes| Figures::of_rounds(&[(0.5, handshakes)]);
            Pair {
                stock: figures(stock),
                lockstep: figures(lockstep),
            }
        };
        let (few, many) = (pair(900, 1000), pair(1000, 1900));
        let pairs = [(Demand::Clients(1), &few), (Demand::Clients(64), &many)];
        let chart = throughput("handshakes per second", &pairs).unwrap();
        let values: Vec<&str> = chart.ticks.iter().map(|tick| &*tick.value).collect();
        assert_eq!(values, ["0", "500", "1,000", "1,500", "2,000"]);
        let heights = |curve: &Curve| -> Vec<f64> {
            let heights = curve.points.iter().map(|point| point.y.0);
            heights.collect()
        };
        let room = HEIGHT - TOP - BOTTOM;
        let at = |value: f64| TOP + room * (1.0 - value / 2000.0);
        assert_eq!(chart.curves.len(), 2);
        for (curve, expected) in chart.curves.iter().zip([[900.0, 1000.0], [1000.0, 1900.0]]) {
            for (height, value) in heights(curve).into_iter().zip(expected) {
                assert!((height - at(value)).abs() < 1e-9, "{height} for {value}");
            }
        }
        let svg = chart.draw().unwrap();
        assert_eq!(svg.matches("<circle ").count(), 4, "{svg}");
        for text in [
            "handshakes per second",
            "clients at a time",
            "OpenSSL alone",
            "lockstep",
        ] {
            assert!(svg.contains(&format!(">{text}</text>")), "{text}: {svg}");
        }
        let none = Pair::default();
        assert!(throughput("nothing", &[(Demand::Rate(1), &none)]).is_none());
    }

    #[test]
    fn the_highest_value_is_at_the_top() {
        let axis = Axis {
            low: 0.1,
            high: 1000.0,
            logarithmic: true,
        };
        assert!((axis.down(1000.0) - TOP).abs() < 1e-9);
        assert!((axis.down(0.1) - (HEIGHT - BOTTOM)).abs() < 1e-9);
    }
}
