//! Figures as SVG: groups of bars, one for each method, and the paper's where it gives one.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use novale_core::Placement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::writer::METHODS;

const SIZE: (i32, i32) = (1200, 520);
const LEGEND_WIDTH: i32 = 240;
const FONT: &str = "sans-serif";
/// Of a group's width, what its bars take.
const BARS_WIDTH: f64 = 0.84;
/// A colour for each method, in their order.
const COLOURS: [RGBColor; 8] = [
    RGBColor(38, 70, 83),
    RGBColor(231, 111, 81),
    RGBColor(138, 177, 125),
    RGBColor(233, 196, 106),
    RGBColor(42, 157, 143),
    RGBColor(106, 76, 147),
    RGBColor(25, 130, 196),
    RGBColor(188, 80, 144),
];
const PAPERS: [RGBColor; 2] = [RGBColor(110, 110, 110), RGBColor(190, 190, 190)];

/// Bars of one method: one in each group, or none.
#[derive(Debug)]
pub(crate) struct Series {
    name: String,
    colour: RGBColor,
    bars: Vec<Option<f64>>,
}

impl Series {
    /// Bars of one of ours, in its method's colour.
    pub(crate) fn ours(name: &str, bars: Vec<Option<f64>>) -> Self {
        let method = METHODS.iter().position(|method| method.name() == name);
        let colour = method.and_then(|index| COLOURS.get(index)).copied().unwrap_or(BLACK);
        Self { name: name.to_owned(), colour, bars }
    }

    /// Bars of something else, in the colour of this number.
    pub(crate) fn numbered(name: &str, number: usize, bars: Vec<Option<f64>>) -> Self {
        let colour = COLOURS.get(number).copied().unwrap_or(BLACK);
        Self { name: name.to_owned(), colour, bars }
    }

    /// Bars of a way to use slots.
    pub(crate) fn placed(placement: Placement, bars: Vec<Option<f64>>) -> Self {
        let colour = COLOURS.get(placement as usize).copied().unwrap_or(BLACK);
        Self { name: placement.name().to_owned(), colour, bars }
    }

    /// Bars of the paper's; in the lighter grey, the second of two.
    pub(crate) fn paper(name: &str, second: bool, bars: Vec<Option<f64>>) -> Self {
        let [first, other] = PAPERS;
        Self { name: name.to_owned(), colour: if second { other } else { first }, bars }
    }
}

/// What one SVG shows.
#[derive(Debug)]
pub(crate) struct Figure {
    /// The file's name, without its ending.
    pub(crate) file: String,
    pub(crate) title: String,
    /// What stands below each group.
    pub(crate) groups: Vec<String>,
    /// The titles of the axes.
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) series: Vec<Series>,
}

impl Figure {
    /// Writes it into a folder, which is made where it is not there.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("the folder {} can't be made", folder.display()))?;
        let path = folder.join(format!("{}.svg", self.file));
        let mut text = String::new();
        // The backend's errors borrow from what it draws into.
        self.draw(&mut text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        std::fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let size = (u32::try_from(SIZE.0)?, u32::try_from(SIZE.1)?);
        let area = SVGBackend::with_string(text, size).into_drawing_area();
        area.fill(&WHITE)?;
        let groups = u32::try_from(self.groups.len()).map(f64::from)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, (FONT, 26))
            .margin(12)
            .margin_right(LEGEND_WIDTH)
            .x_label_area_size(64)
            .y_label_area_size(84)
            .build_cartesian_2d(0.0..groups, self.heights())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .max_light_lines(1)
            .label_style((FONT, 16))
            .axis_desc_style((FONT, 19))
            .x_desc(&self.x)
            .y_desc(&self.y)
            .y_label_formatter(&|value| format!("{value:.0}"))
            .draw()?;
        let width = BARS_WIDTH / u32::try_from(self.series.len()).map(f64::from)?;
        for (index, series) in (0_u32..).zip(&self.series) {
            let bars = (0_u32..).zip(&series.bars).filter_map(|(group, height)| {
                let left = f64::from(group) + (1.0 - BARS_WIDTH) / 2.0 + f64::from(index) * width;
                let corners = |height| [(left, 0.0), (left + width, height)];
                height.map(|height| Rectangle::new(corners(height), series.colour.filled()))
            });
            chart.draw_series(bars)?;
        }
        let style = (FONT, 16).into_text_style(&area).pos(Pos::new(HPos::Center, VPos::Top));
        let lowest = self.heights().start;
        chart.draw_series((0_u32..).zip(&self.groups).map(|(group, name)| {
            EmptyElement::at((f64::from(group) + 0.5, lowest))
                + Text::new(name.clone(), (0, 6), style.clone())
        }))?;
        let (left, mut top) = (SIZE.0 - LEGEND_WIDTH + 14, 60);
        for series in &self.series {
            let corners = [(left, top), (left + 14, top + 14)];
            area.draw(&Rectangle::new(corners, series.colour.filled()))?;
            area.draw(&Text::new(series.name.clone(), (left + 22, top), (FONT, 16)))?;
            top += 24;
        }
        area.present()?;
        Ok(())
    }

    /// From the lowest bar, or 0, to somewhat above the highest.
    fn heights(&self) -> Range<f64> {
        let all = || self.series.iter().flat_map(|series| series.bars.iter().flatten().copied());
        let (least, greatest) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
        least * 1.05..(greatest * 1.05).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_bars_and_titles() {
        let figure = Figure {
            file: "some".into(),
            title: "a title".into(),
            groups: vec!["1 KB".into(), "2 KB".into()],
            x: "a write".into(),
            y: "percent".into(),
            series: vec![
                Series::ours("adl", vec![Some(10.0), Some(-3.0)]),
                Series::paper("paper: adl", false, vec![Some(20.0), None]),
            ],
        };
        let folder = tempfile::tempdir().unwrap();
        figure.write(folder.path()).unwrap();
        let text = std::fs::read_to_string(folder.path().join("some.svg")).unwrap();
        for part in ["a title", "1 KB", "2 KB", "a write", "percent", "paper: adl", "</svg>"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let bars = [COLOURS[5], PAPERS[0]]
            .map(|RGBColor(r, g, b)| text.matches(&format!("#{r:02X}{g:02X}{b:02X}")).count());
        // And one each in the legend.
        assert_eq!(bars, [3, 2]);
    }
}
