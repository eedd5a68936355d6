//! Plots as SVG: latency by percentile, and latency against load.

pub(crate) mod against_limits;

use std::path::Path;

use hdrhistogram::Histogram;
use plotters::prelude::*;
use serde_json::Value;
use thiserror::Error;

use crate::latency::SAMPLES_BEYOND_MIN;

const SIZE: (u32, u32) = (960, 540);
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 190, 207),
];

/// A plot cannot be drawn.
#[derive(Debug, Error)]
pub enum PlotError {
    /// The file cannot be written or the figures cannot be drawn.
    #[error("{path}: {reason}")]
    Draw {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// A result file cannot be read.
    #[error("{path}: {reason}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// There is nothing to draw.
    #[error("there are no points to draw")]
    Empty,
}

/// A named line of points.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it is, for the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// The percentile line of a histogram in nanoseconds: x is 1 / (1 - quantile), y milliseconds. It ends where samples become few.
pub fn percentile_line(name: &str, histogram: &Histogram<u64>) -> Line {
    let mut points = Vec::new();
    for value in histogram.iter_quantiles(5) {
        let rest = 1.0 - value.quantile_iterated_to();
        if rest * histogram.len() as f64 + 1e-6 < SAMPLES_BEYOND_MIN {
            break;
        }
        points.push((1.0 / rest, value.value_iterated_to() as f64 / 1e6));
    }
    Line { name: name.to_owned(), points }
}

/// Latency by percentile, the percentile on a logarithmic axis of nines.
///
/// # Errors
/// When there are no points or the file cannot be written.
pub fn by_percentile(path: &Path, title: &str, caption: &str, lines: &[Line]) -> Result<(), PlotError> {
    let nines = |x: &f64| format!("{}", (100.0 * (1.0 - 1.0 / x) * 1e6).round() / 1e6);
    draw(path, title, caption, ("percentile", "latency, ms"), lines, &nines, true)
}

/// Latency against the acknowledged rate.
///
/// # Errors
/// When there are no points or the file cannot be written.
pub fn against_load(path: &Path, title: &str, caption: &str, lines: &[Line]) -> Result<(), PlotError> {
    let plain = |x: &f64| format!("{x:.0}");
    draw(path, title, caption, ("messages per second", "latency, ms"), lines, &plain, false)
}

fn draw(
    path: &Path,
    title: &str,
    caption: &str,
    axes: (&str, &str),
    lines: &[Line],
    x_label: &dyn Fn(&f64) -> String,
    log_x: bool,
) -> Result<(), PlotError> {
    let points = || lines.iter().flat_map(|line| &line.points);
    if points().next().is_none() {
        return Err(PlotError::Empty);
    }
    let wrong = |reason: String| PlotError::Draw { path: path.display().to_string(), reason };
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(|error| wrong(error.to_string()))?;
    let (x_max, y_max) = points().fold((0.0_f64, 0.0_f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
    let y_min = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let y_range = (y_min.max(1e-3) * 0.8..y_max.max(1e-2) * 1.3).log_scale();
    let (drawing, foot) = area.split_vertically(SIZE.1 - 24);
    foot.draw(&Text::new(caption.to_owned(), (10, 6), ("sans-serif", 12))).map_err(|error| wrong(error.to_string()))?;
    let mut builder = ChartBuilder::on(&drawing);
    builder.caption(title, ("sans-serif", 20)).margin(10).x_label_area_size(40).y_label_area_size(60);
    if log_x {
        let chart = builder.build_cartesian_2d((1.0..x_max.max(10.0)).log_scale(), y_range);
        fill(chart.map_err(|error| wrong(error.to_string()))?, axes, lines, x_label).map_err(wrong)?;
    } else {
        let chart = builder.build_cartesian_2d(0.0..x_max * 1.05, y_range);
        fill(chart.map_err(|error| wrong(error.to_string()))?, axes, lines, x_label).map_err(wrong)?;
    }
    area.present().map_err(|error| wrong(error.to_string()))
}

fn fill<'a, X, Y>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    axes: (&str, &str),
    lines: &[Line],
    x_label: &dyn Fn(&f64) -> String,
) -> Result<(), String>
where
    X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
{
    let y_label = |y: &f64| format!("{y:.3}").trim_end_matches('0').trim_end_matches('.').to_owned();
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(axes.0).y_desc(axes.1).x_label_formatter(&x_label).y_label_formatter(&y_label);
    mesh.draw().map_err(|error| error.to_string())?;
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))
            .map_err(|error| error.to_string())?
            .label(line.name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        let dots = line.points.iter().filter(|_| line.points.len() <= 20).map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(dots).map_err(|error| error.to_string())?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
        .map_err(|error| error.to_string())
}

/// Draws the publish latencies of result files into one plot, to compare them.
///
/// # Errors
/// When a file is not a result, or the plot cannot be drawn.
pub fn compare(results: &[std::path::PathBuf], out: &Path) -> Result<(), PlotError> {
    let mut lines = Vec::new();
    let mut caption = String::new();
    for path in results {
        let wrong = |reason: String| PlotError::Read { path: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let quantiles = value["aggregatedPublishLatencyQuantiles"].as_object();
        let quantiles = quantiles.ok_or_else(|| wrong("it has no aggregatedPublishLatencyQuantiles".to_owned()))?;
        let point = |(key, value): (&String, &Value)| Some((1.0 / (1.0 - key.parse::<f64>().ok()? / 100.0), value.as_f64()?));
        let mut points: Vec<(f64, f64)> = quantiles.iter().filter_map(point).filter(|point| point.0.is_finite()).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        lines.push(Line { name: format!("{stem}: {}", value["driver"].as_str().unwrap_or("?")), points });
        if let Some(model) = value["machine"]["cpu"]["model"].as_str() {
            model.clone_into(&mut caption);
        }
    }
    by_percentile(out, "publish latency by percentile", &caption, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::histogram;

    #[test]
    fn plots_are_drawn_with_axes_and_legend() {
        let folder = tempfile::tempdir().unwrap();
        let mut samples = histogram();
        (1..=10_000_u64).for_each(|value| samples.record(value * 1_000).unwrap());
        let line = percentile_line("publish", &samples);
        assert!(line.points.last().unwrap().0 <= 1001.0, "no point beyond ten samples");
        let path = folder.path().join("percentiles.svg");
        by_percentile(&path, "a title", "a machine", &[line]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("<svg") && text.contains("a title") && text.contains("a machine") && text.contains("publish"));
        let load = Line { name: "p99".to_owned(), points: vec![(1000.0, 0.5), (2000.0, 0.7), (4000.0, 3.0)] };
        let path = folder.path().join("load.svg");
        against_load(&path, "load", "a machine", &[load]).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("messages per second"));
        assert!(matches!(against_load(&path, "load", "", &[]), Err(PlotError::Empty)));
    }
}
