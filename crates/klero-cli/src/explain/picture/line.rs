//! The inverse CDF: the line from 0 to 1 that the kept tokens share, and the point u on it.

use super::panel::{Mark, Panel, axis, numbers};
use super::scale::Scale;
use super::scene::{Rect, Scene, colours};
use klero::{ExplainedToken, Lot};

const HEIGHT: f64 = 12.0;
/// A part shows, however small it is.
const LEAST: f64 = 1.5;

pub struct UnitLine {
    scale: Scale,
    uniform: f64,
    end: f64,
}

impl UnitLine {
    /// The line between `left` and `right`, with u on it.
    pub fn new(uniform: f64, left: f64, right: f64) -> Self {
        Self { scale: Scale::new((0.0, 1.0), (left, right - 150.0)), uniform, end: right }
    }
}

impl Panel for UnitLine {
    fn columns(&self) -> Vec<(f64, &'static str)> {
        vec![(self.end - 72.0, "from"), (self.end, "to")]
    }

    fn behind(&self, scene: &mut Scene, top: f64, bottom: f64) {
        axis(scene, &self.scale, (top, bottom), self.uniform, format!("u = {:.6}", self.uniform));
    }

    fn row(&self, scene: &mut Scene, token: &ExplainedToken, drawn: bool, y: f64) {
        let Some(Lot::Interval { from, to }) = token.lot else { return };
        scene.add(Rect::bar(self.scale.left(), self.scale.right(), y, 2.0, colours::GHOST));
        let (left, right) = (self.scale.at(from), self.scale.at(to));
        let colour = if drawn { colours::VERMILION } else { colours::BLUE };
        scene.add(Rect::bar(left, right.max(left + LEAST), y, HEIGHT, colour));
        numbers(scene, &self.columns(), &[from, to].map(|end| format!("{end:.6}")), drawn, y);
    }

    fn idea(&self) -> &'static str {
        "The part of a token is as long as its chance among those kept, and u may fall anywhere."
    }

    fn legend(&self) -> Vec<(Mark, &'static str)> {
        vec![(Mark::Across(colours::VERMILION), "u")]
    }
}
