//! Figures of two runs beside each other, each divided by its limit: one row a figure, the limit a line at 1.

use std::path::Path;

use plotters::prelude::*;

use super::{COLOURS, PlotError};

const WIDTH: u32 = 960;
const ROW_HEIGHT: u32 = 44;
/// Title, axis and caption.
const FRAME_HEIGHT: u32 = 130;

/// A value with its quartiles, divided by its limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A figure of both runs.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) sides: [Side; 2],
}

/// Draws rows from top to bottom; `names` are those of the two runs.
///
/// # Errors
/// When there is no row or the file cannot be written.
pub(crate) fn draw(path: &Path, title: &str, caption: &str, names: &[String; 2], rows: &[Row]) -> Result<(), PlotError> {
    if rows.is_empty() {
        return Err(PlotError::Empty);
    }
    draw_rows(path, title, caption, names, rows)
        .map_err(|error| PlotError::Draw { path: path.display().to_string(), reason: error.to_string() })
}

fn draw_rows(
    path: &Path,
    title: &str,
    caption: &str,
    names: &[String; 2],
    rows: &[Row],
) -> Result<(), Box<dyn std::error::Error>> {
    let height = FRAME_HEIGHT + ROW_HEIGHT * rows.len() as u32;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let (drawing, foot) = area.split_vertically(height - 24);
    foot.draw(&Text::new(caption.to_owned(), (10, 6), ("sans-serif", 12)))?;
    let furthest = rows.iter().flat_map(|row| row.sides).map(|side| side.high.max(side.value)).fold(1.0, f64::max);
    let count = rows.len() as f64;
    let mut builder = ChartBuilder::on(&drawing);
    builder.caption(title, ("sans-serif", 20)).margin(10).x_label_area_size(36).y_label_area_size(130);
    let mut chart = builder.build_cartesian_2d(0.0..furthest * 1.05, 0.0..count)?;
    // The first row stands on top; names are drawn one by one, since a mesh labels where it likes.
    chart.configure_mesh().disable_y_mesh().y_labels(0).x_desc("value / bar; the bar is at 1").draw()?;
    for (number, row) in rows.iter().enumerate() {
        let middle = count - number as f64 - 0.5;
        let (x, y) = chart.backend_coord(&(0.0, middle));
        drawing.draw(&Text::new(row.name.clone(), (x - 125, y - 6), ("sans-serif", 13)))?;
    }
    for (side, name) in names.iter().enumerate() {
        let colour = COLOURS[side];
        let middle = |number: usize| count - number as f64 - if side == 0 { 0.35 } else { 0.65 };
        let bars = rows.iter().enumerate().map(|(number, row)| {
            let y = middle(number);
            Rectangle::new([(0.0, y - 0.12), (row.sides[side].value, y + 0.12)], colour.mix(0.7).filled())
        });
        chart
            .draw_series(bars)?
            .label(name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 16, y + 4)], colour.mix(0.7).filled()));
        let whiskers = rows.iter().enumerate().map(|(number, row)| {
            let y = middle(number);
            PathElement::new([(row.sides[side].low, y), (row.sides[side].high, y)], colour.stroke_width(2))
        });
        chart.draw_series(whiskers)?;
    }
    chart.draw_series(LineSeries::new([(1.0, 0.0), (1.0, count)], BLACK.stroke_width(1)))?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}
