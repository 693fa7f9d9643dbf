//! The Gumbel race: logit / T and noise on top of each other, and how far the best score is from each.

use super::panel::{Mark, Panel, axis, numbers};
use super::scale::Scale;
use super::scene::{Line, Rect, Scene, colours};
use crate::words::number;
use klero::{ExplainedToken, Lot};

const HEIGHT: f64 = 12.0;

pub struct Race {
    scale: Scale,
    best: f64,
    end: f64,
}

impl Race {
    /// The race of the tokens shown, between `left` and `right`.
    pub fn new(tokens: &[ExplainedToken], left: f64, right: f64) -> Self {
        let scores = || tokens.iter().filter_map(score);
        let levels = tokens.iter().filter(|token| token.lot.is_some()).map(|token| f64::from(token.scaled));
        Self {
            scale: Scale::around(levels.chain(scores()), (left, right - 216.0)),
            best: scores().fold(f64::NEG_INFINITY, f64::max),
            end: right,
        }
    }
}

fn score(token: &ExplainedToken) -> Option<f64> {
    match token.lot {
        Some(Lot::Race { score, .. }) => Some(score),
        _ => None,
    }
}

impl Panel for Race {
    fn columns(&self) -> Vec<(f64, &'static str)> {
        vec![(self.end - 136.0, "logit / T"), (self.end - 72.0, "+ noise"), (self.end, "= score")]
    }

    fn behind(&self, scene: &mut Scene, top: f64, bottom: f64) {
        axis(scene, &self.scale, (top, bottom), self.best, "largest score".to_owned());
    }

    fn row(&self, scene: &mut Scene, token: &ExplainedToken, drawn: bool, y: f64) {
        let Some(Lot::Race { noise, score }) = token.lot else { return };
        let level = f64::from(token.scaled);
        let [left, at_level, at_score] = [self.scale.left(), self.scale.at(level), self.scale.at(score)];
        scene.add(Rect::bar(left, at_level.min(at_score), y, HEIGHT, colours::PALE));
        match noise.gumbel >= 0.0 {
            true => scene.add(Rect::bar(at_level, at_score, y, HEIGHT, colours::ORANGE)),
            false => scene.add(Rect::bar(at_level, at_score, y, HEIGHT - 1.0, colours::PAPER).edged(colours::ORANGE)),
        }
        let colour = if drawn { colours::VERMILION } else { colours::INK };
        scene.add(Line::new((at_score, y - 9.0), (at_score, y + 9.0), 2.5, colour));
        let texts = [number(level, 9), format!("{:+.3}", noise.gumbel), number(score, 9)];
        numbers(scene, &self.columns(), &texts, drawn, y);
    }

    fn idea(&self) -> &'static str {
        "With noise of this kind (Gumbel's) a token has the largest score just as often as its chance among those kept says."
    }

    fn legend(&self) -> Vec<(Mark, &'static str)> {
        vec![
            (Mark::Bar(colours::PALE), "logit / T"),
            (Mark::Bar(colours::ORANGE), "noise, if it adds"),
            (Mark::Hollow(colours::ORANGE), "noise, if it takes away"),
            (Mark::End(colours::INK), "score"),
            (Mark::Across(colours::VERMILION), "largest score"),
        ]
    }
}
