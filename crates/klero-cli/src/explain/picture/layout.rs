//! Where everything stands.

use super::line::UnitLine;
use super::panel::{HEADS, Mark, NUMBERS, Panel};
use super::prose::wrap;
use super::race::Race;
use super::scene::{Anchor, Colour, Font, Line, Rect, Scene, Shape, Text, colours};
use crate::explain::page::Page;
use crate::words::{count, percent, quote, shorten};
use klero::{Cut, Draw, ExplainedToken, Explanation, Fate, FilterOrder};

const WIDTH: f64 = 960.0;
/// Where the contents begin and end.
const LEFT: f64 = 32.0;
const RIGHT: f64 = WIDTH - LEFT;

const TITLE: Font = Font::mono(16.0).bold();
const RESULT: Font = Font::mono(15.0).bold();
const PROSE: Font = Font::sans(13.0);
const NOTES: Font = Font::sans(12.0);
const TOKENS: Font = Font::mono(14.0);

/// From one line of prose to the next.
const LEADING: f64 = 20.0;

/// Columns of a token's text, of the drawn token's below the table.
const TOKEN: usize = 18;
const DRAWN: usize = 40;

/// Marks in a line of the legend.
const LEGEND: usize = 4;

/// Where columns end (those of numbers) or begin and end (texts and bars).
const RANK: f64 = 82.0;
const TEXT: (f64, f64) = (98.0, 252.0);
const ID: f64 = 310.0;
const CHANCE: (f64, f64) = (332.0, 426.0);
const PERCENT: f64 = 494.0;
const PANEL: f64 = 524.0;

/// What the reader of a picture may not know.
const CHANCE_IN_WORDS: &str = "Chance is what the softmax of logit / T gives a token, T being the temperature.";

/// A horizontal piece of the table.
enum Band<'a> {
    Token(&'a ExplainedToken),
    /// Ranks that are left out.
    Gap,
    Cut(&'a Cut),
    /// What is said of the ids below.
    Rest(String),
}

impl Band<'_> {
    fn height(&self) -> f64 {
        match self {
            Self::Token(_) => 30.0,
            Self::Gap => 20.0,
            Self::Cut(_) => 27.0,
            Self::Rest(_) => 30.0,
        }
    }
}

/// A picture in the making.
pub struct Layout<'a, 'p> {
    page: &'a Page<'p>,
    /// Which characters can be shown.
    shows: &'a dyn Fn(char) -> bool,
    panel: Box<dyn Panel>,
    scene: Scene,
    /// How far down it has got.
    y: f64,
}

impl<'a, 'p> Layout<'a, 'p> {
    /// An empty picture of `page` in characters that `shows` allows.
    pub fn new(page: &'a Page<'p>, shows: &'a dyn Fn(char) -> bool) -> Self {
        let Explanation { draw, tokens, uniform, .. } = page.explanation;
        let panel: Box<dyn Panel> = match draw {
            Draw::Gumbel => Box::new(Race::new(tokens, PANEL, RIGHT)),
            Draw::InverseCdf => Box::new(UnitLine::new(*uniform, PANEL, RIGHT)),
        };
        let scene =
            Scene { width: WIDTH, height: 0.0, title: String::new(), description: String::new(), shapes: vec![] };
        Self { page, shows, panel, scene, y: 0.0 }
    }

    /// The picture.
    pub fn draw(mut self) -> Scene {
        self.head();
        self.table();
        self.legend();
        self.conclusion();
        self.scene.height = self.y + 28.0;
        let card = Rect::bar(0.5, WIDTH - 0.5, self.scene.height / 2.0, self.scene.height - 1.0, colours::PAPER);
        self.scene.shapes.insert(0, card.rounded(10.0).edged(colours::EDGE).into());
        self.scene
    }

    fn head(&mut self) {
        self.scene.title = self.spell(self.page.source);
        self.y = 46.0;
        let title = shorten(&self.scene.title, columns(TITLE));
        self.scene.add(Text::new(LEFT, self.y, TITLE, title).until(RIGHT));
        self.y += 3.0;
        let page = self.page;
        for line in [Some(page.parameters()), page.edits.clone(), Some(page.randomness())].into_iter().flatten() {
            self.prose(&line);
        }
        self.y += 46.0;
    }

    /// Text in as many lines as it takes.
    fn prose(&mut self, text: &str) {
        for line in wrap(text, columns(PROSE)) {
            self.y += LEADING;
            self.scene.add(Text::new(LEFT, self.y, PROSE, line).coloured(colours::MUTED));
        }
    }

    fn table(&mut self) {
        self.heads();
        let bands = self.bands();
        let top = self.y;
        let kept = |band: &Band| matches!(band, Band::Token(token) if token.lot.is_some());
        let until = bands.iter().rposition(kept).map_or(0, |last| last + 1);
        let bottom = top + bands[..until].iter().map(Band::height).sum::<f64>();
        self.highlight(&bands);
        self.panel.behind(&mut self.scene, top, bottom);
        for band in bands {
            match &band {
                Band::Token(token) => self.token(token, self.y + band.height() / 2.0),
                Band::Gap => {
                    let dots = Text::new(RANK, self.y + 15.0, NUMBERS, "⋮").anchored(Anchor::End);
                    self.scene.add(dots.coloured(colours::MUTED));
                }
                Band::Cut(cut) => self.cut(cut),
                Band::Rest(words) => {
                    let words = Text::new(TEXT.0, self.y + 20.0, NOTES, words.as_str());
                    self.scene.add(words.coloured(colours::MUTED));
                }
            }
            self.y += band.height();
        }
    }

    fn heads(&mut self) {
        let text = [("token", TEXT.0, Anchor::Start), ("id", ID, Anchor::End)];
        let id = [("token", TEXT.0, Anchor::Start)];
        let text = if self.named() { &text[..] } else { &id[..] };
        let chance = [("rank", RANK, Anchor::End), ("chance", self.chance().0, Anchor::Start)];
        let lot = self.panel.columns().into_iter().map(|(x, name)| (name, x, Anchor::End));
        for (name, x, anchor) in text.iter().copied().chain(chance).chain(lot) {
            self.scene.add(Text::new(x, self.y - 13.0, HEADS, name).anchored(anchor).coloured(colours::MUTED));
        }
        self.scene.add(Line::new((LEFT, self.y - 4.5), (RIGHT, self.y - 4.5), 1.0, colours::EDGE));
    }

    fn bands(&self) -> Vec<Band<'a>> {
        let mut bands = vec![];
        let mut next = 0;
        for token in &self.page.explanation.tokens {
            if token.rank > next {
                bands.push(Band::Gap);
            }
            bands.push(Band::Token(token));
            next = token.rank + 1;
            bands.extend(self.page.explanation.cuts.iter().filter(|cut| cut.rank == next).map(Band::Cut));
        }
        bands.extend(self.page.left_out().map(Band::Rest));
        bands
    }

    /// Paints the ground of the drawn token's row.
    fn highlight(&mut self, bands: &[Band]) {
        let mut top = self.y;
        for band in bands {
            if matches!(band, Band::Token(token) if self.drawn(token)) {
                let middle = top + band.height() / 2.0;
                self.scene.add(Rect::bar(16.0, WIDTH - 16.0, middle, band.height(), colours::BAND).rounded(6.0));
            }
            top += band.height();
        }
    }

    fn token(&mut self, token: &ExplainedToken, y: f64) {
        let (drawn, kept) = (self.drawn(token), token.lot.is_some());
        if drawn {
            let mark = [(24.0, y - 6.0), (24.0, y + 6.0), (34.0, y)];
            self.scene.add(Shape::Triangle(mark, colours::VERMILION));
        }
        self.name(token, y);
        let (left, right) = self.chance();
        let colour = match kept {
            _ if drawn => colours::VERMILION,
            true => colours::BLUE,
            false => colours::GHOST,
        };
        let share = token.probability / self.page.best().probability;
        self.scene.add(Rect::bar(left, left + (share * (right - left)).max(1.0), y, 14.0, colour));
        self.scene.add(self.number(token, PERCENT, y, percent(token.probability)).coloured(ink(token)));
        match kept {
            true => self.panel.row(&mut self.scene, token, drawn, y),
            false => {
                let why = format!("removed: {}", self.page.why_removed(token));
                self.scene.add(Text::new(PANEL, y + 4.0, NOTES, why).coloured(colours::MUTED).until(RIGHT));
            }
        }
    }

    /// Rank, text and id of a token, with a star if its logit was edited.
    fn name(&mut self, token: &ExplainedToken, y: f64) {
        let rank = self.number(token, RANK, y, (token.rank + 1).to_string());
        self.scene.add(rank.coloured(colours::MUTED));
        let id = token.token.to_string();
        let font = if self.drawn(token) { TOKENS.bold() } else { TOKENS };
        let text = self.quoted(token.token, TOKEN);
        let end = if text.is_some() { ID } else { TEXT.0 + id.len() as f64 * font.advance() };
        if text.is_some() {
            let id = self.number(token, ID, y, id.clone());
            self.scene.add(id.coloured(colours::MUTED));
        }
        let text = Text::new(TEXT.0, y + 5.0, font, text.unwrap_or(id));
        self.scene.add(text.coloured(ink(token)).until(TEXT.1));
        if self.page.edited(token).is_some() {
            self.scene.add(Text::new(end + 2.0, y + 4.0, NUMBERS.bold(), "*").coloured(colours::VERMILION));
        }
    }

    /// A number in the row of a token that ends at `x`.
    fn number(&self, token: &ExplainedToken, x: f64, y: f64, text: String) -> Text {
        let font = if self.drawn(token) { NUMBERS.bold() } else { NUMBERS };
        Text::new(x, y + 4.0, font, text).anchored(Anchor::End)
    }

    fn cut(&mut self, cut: &Cut) {
        let y = self.y + 21.0;
        self.scene.add(Line::new((LEFT, y), (RIGHT, y), 1.5, colours::INK).dashed());
        let (name, rule) = self.cut_in_words(cut);
        self.scene.add(Text::new(TEXT.0, y - 6.0, HEADS, name));
        self.scene.add(Text::new(PANEL, y - 6.0, NOTES, rule));
    }

    fn cut_in_words(&self, cut: &Cut) -> (String, String) {
        let params = self.page.params;
        let (name, rule) = match cut.fate {
            Fate::Kept => return Default::default(),
            Fate::TopP => (
                format!("top_p {}", params.top_p),
                match params.filter_order {
                    FilterOrder::TopPFirst => format!("{} of the probability lies above", percent(cut.mass)),
                    FilterOrder::MinPFirst => "that share of what the others leave lies above".to_owned(),
                },
            ),
            Fate::TopK => (format!("top_k {}", params.top_k), format!("only the best {} may stay", count(cut.rank))),
            Fate::MinP => (
                format!("min_p {}", params.min_p),
                format!("below, less than {} of the best token's chance", params.min_p),
            ),
        };
        (format!("{name} cuts here"), rule)
    }

    fn legend(&mut self) {
        self.y += 12.0;
        self.scene.add(Line::new((LEFT, self.y + 0.5), (RIGHT, self.y + 0.5), 1.0, colours::EDGE));
        self.y += 22.0;
        let bars = [(colours::BLUE, "chance"), (colours::VERMILION, "drawn"), (colours::GHOST, "removed by a filter")];
        let mut marks: Vec<(Mark, &str)> = bars.map(|(colour, name)| (Mark::Bar(colour), name)).into();
        marks.extend(self.panel.legend());
        for line in marks.chunks(LEGEND) {
            for (i, (mark, name)) in line.iter().enumerate() {
                let x = LEFT + (RIGHT - LEFT) / LEGEND as f64 * i as f64;
                self.mark(*mark, x);
                self.scene.add(Text::new(x + 26.0, self.y + 4.0, NOTES, *name).coloured(colours::MUTED));
            }
            self.y += 24.0;
        }
    }

    fn mark(&mut self, mark: Mark, x: f64) {
        let (y, middle) = (self.y, x + 8.0);
        match mark {
            Mark::Bar(colour) => self.scene.add(Rect::bar(x, x + 16.0, y, 10.0, colour)),
            Mark::Hollow(colour) => self.scene.add(Rect::bar(x, x + 16.0, y, 9.0, colours::PAPER).edged(colour)),
            Mark::End(colour) => self.scene.add(Line::new((middle, y - 7.0), (middle, y + 7.0), 2.5, colour)),
            Mark::Across(colour) => {
                self.scene.add(Line::new((middle, y - 9.0), (middle, y + 9.0), 1.5, colour).dashed());
            }
        }
    }

    fn conclusion(&mut self) {
        let page = self.page;
        let token = page.explanation.outcome.token;
        self.y += 20.0;
        let name = match self.quoted(token, DRAWN) {
            Some(text) => format!("{text}, token {token}"),
            None => format!("token {token}"),
        };
        let label = "Drawn: ";
        let x = LEFT + label.len() as f64 * RESULT.advance();
        self.scene.add(Text::new(LEFT, self.y, RESULT, label));
        self.scene.add(Text::new(x, self.y, RESULT, name.as_str()).coloured(colours::VERMILION).until(RIGHT));
        let drawing = [page.how(), page.filtered(), page.chances()].join(" ").replace('\n', " ");
        self.scene.description = format!("Drawn: {name}. {drawing}");
        let edited = page.explanation.tokens.iter().any(|token| page.edited(token).is_some());
        let edited = edited.then(|| "* A penalty or a bias changed its logit.".to_owned());
        let background = format!("{CHANCE_IN_WORDS} {}", self.panel.idea());
        for paragraph in [drawing, background].into_iter().chain(edited) {
            self.y += 4.0;
            self.prose(&paragraph);
        }
    }

    fn drawn(&self, token: &ExplainedToken) -> bool {
        token.token == self.page.explanation.outcome.token
    }

    fn named(&self) -> bool {
        self.quoted(self.page.explanation.outcome.token, TOKEN).is_some()
    }

    /// The room of the bars: also that of the texts, where there are none.
    fn chance(&self) -> (f64, f64) {
        if self.named() { CHANCE } else { (TEXT.0 + 90.0, CHANCE.1) }
    }

    fn quoted(&self, token: u32, width: usize) -> Option<String> {
        (self.page.text)(token).map(|bytes| shorten(&self.spell(&quote(bytes)), width))
    }

    /// A text in characters that can be shown; others as their numbers.
    fn spell(&self, text: &str) -> String {
        let plain = |character: char| matches!(character, '"' | '\'' | '\\') || character.escape_debug().len() == 1;
        let mut spelt = String::new();
        for character in text.chars() {
            match plain(character) && (self.shows)(character) {
                true => spelt.push(character),
                false => spelt.extend(character.escape_unicode()),
            }
        }
        spelt
    }
}

fn ink(token: &ExplainedToken) -> Colour {
    if token.lot.is_some() { colours::INK } else { colours::MUTED }
}

/// Columns of a font between the margins.
fn columns(font: Font) -> usize {
    ((RIGHT - LEFT) / font.advance()) as usize
}
