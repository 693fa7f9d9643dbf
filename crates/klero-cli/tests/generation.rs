//! Texts that grow: beside others, as samples, and with tokens guessed ahead. With models of a few kilobytes whose tokens
//! are single bytes.

#[path = "../../klero/tests/common/chi.rs"]
#[allow(dead_code, reason = "made for the tests of the library")]
mod chi;
#[path = "../../klero-models/tests/support/tiny.rs"]
#[allow(dead_code, reason = "made for the tests of models")]
mod tiny;

use klero::{Draw, FusedHead, History, LogitBias, Outcome, SamplingParams};
use klero_cli::edits::OwnedEdits;
use klero_cli::generation::{
    DraftModel, Drafter, Drafts, End, Engine, Generation, GenerationError, PIECE, Rule, Source, Text,
};
use klero_models::Model;
use std::sync::OnceLock;
use tiny::{TempFile, Tiny, Value};

/// A model with room for a text.
fn sized(context: u32) -> Tiny {
    let mut tiny = Tiny::llama();
    tiny.set("llama.context_length", Value::U32(context));
    tiny
}

/// The same with slightly other numbers, so that it often draws the same token.
fn disturbed(mut tiny: Tiny, by: f32) -> Tiny {
    let embedding = tiny.tensor("token_embd.weight");
    let values = embedding.values().into_iter().enumerate().map(|(i, value)| value + by * (i as f32 * 1.7).sin());
    embedding.data = values.flat_map(f32::to_le_bytes).collect();
    tiny
}

fn load(name: &str, tiny: &Tiny) -> Model {
    Model::load(&TempFile::new(name, &tiny.bytes()).0).unwrap()
}

/// A model, and one that guesses for it.
fn models() -> &'static (Model, Model) {
    static MODELS: OnceLock<(Model, Model)> = OnceLock::new();
    MODELS.get_or_init(|| (load("target", &sized(90)), load("draft", &disturbed(sized(90), 0.1))))
}

/// Settings of every kind: of temperature, filters, penalties, draws, and what is told.
fn settings() -> Vec<SamplingParams> {
    let default = SamplingParams::default();
    vec![
        SamplingParams { temperature: 0.0, ..default.clone() },
        SamplingParams { temperature: 0.4, top_p: 0.8, ..default.clone() },
        SamplingParams { temperature: 0.3, draw: Draw::InverseCdf, top_k: 20, ..default.clone() },
        SamplingParams { temperature: 0.2, repetition_penalty: 1.3, frequency_penalty: 0.2, ..default.clone() },
        SamplingParams { temperature: 0.3, presence_penalty: -2.0, top_logprobs: 3, raw_logprobs: true, ..default },
    ]
}

fn edits(prompt: &[u32]) -> OwnedEdits {
    let bias = LogitBias::new([(97, 0.5), (98, 0.7)]).unwrap();
    OwnedEdits { history: History::of_prompt(prompt.iter().copied()), bias, banned: [99].into() }
}

fn text(model: &Model, prompt: &str, params: &SamplingParams, max_tokens: usize) -> Text {
    let prompt = model.tokenizer().encode(prompt, false).unwrap();
    let edits = edits(&prompt);
    Text::new(model, prompt, params.check().unwrap(), edits, max_tokens).unwrap()
}

/// What came of a text: its outcomes, and why it ended.
type Grown = (Vec<Outcome>, Result<End, String>);

/// A text alone, through the iterator.
fn alone(model: &Model, prompt: &str, params: &SamplingParams, max_tokens: usize) -> Grown {
    let prompt = model.tokenizer().encode(prompt, false).unwrap();
    let edits = edits(&prompt);
    let mut generation = Generation::new(model, prompt, params.check().unwrap(), edits, max_tokens).unwrap();
    while generation.read_ahead().unwrap() {}
    let mut outcomes = Vec::new();
    for outcome in generation.by_ref() {
        match outcome {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => return (outcomes, Err(error.to_string())),
        }
    }
    (outcomes, Ok(generation.end().unwrap()))
}

/// Texts together, each to its end.
fn together(engine: &mut Engine, texts: &mut [Text]) -> Vec<Grown> {
    let mut grown: Vec<(Vec<Outcome>, Option<String>)> = texts.iter().map(|_| (Vec::new(), None)).collect();
    loop {
        let (mut open, mut places): (Vec<&mut Text>, Vec<usize>) = (Vec::new(), Vec::new());
        for (i, text) in texts.iter_mut().enumerate() {
            if text.end().is_none() && grown[i].1.is_none() {
                open.push(text);
                places.push(i);
            }
        }
        if open.is_empty() {
            break;
        }
        for (i, step) in places.into_iter().zip(engine.step(&mut open).unwrap()) {
            match step {
                Ok(outcomes) => grown[i].0.extend(outcomes),
                Err(error) => grown[i].1 = Some(error.to_string()),
            }
        }
    }
    let ended = grown.into_iter().zip(texts);
    ended.map(|((outcomes, error), text)| (outcomes, error.map_or_else(|| Ok(text.end().unwrap()), Err))).collect()
}

/// The same without what became of drafts.
fn plain((outcomes, end): Grown) -> Grown {
    (outcomes.into_iter().map(|outcome| Outcome { verification: None, ..outcome }).collect(), end)
}

#[test]
fn texts_of_a_batch_are_those_written_alone() {
    let (model, _) = models();
    let long = "a long prompt, of more than one piece; ".repeat(2);
    let prompts = ["a", "abcabc", &long, "é!"];
    for params in settings() {
        let params = SamplingParams { seed: Some(11), ..params };
        let lengths = [3, 60, 12, 30];
        let mut texts: Vec<Text> =
            prompts.iter().zip(lengths).map(|(prompt, length)| text(model, prompt, &params, length)).collect();
        let mut engine = Engine::new(model).unwrap();
        let mut all: Vec<&mut Text> = texts.iter_mut().collect();
        assert!(engine.read_ahead(&mut all, 8).unwrap(), "the long one is read in pieces");
        while engine.read_ahead(&mut all, 8).unwrap() {}
        let grown = together(&mut engine, &mut texts);
        for ((prompt, length), grown) in prompts.iter().zip(lengths).zip(grown) {
            assert_eq!(grown, alone(model, prompt, &params, length), "{prompt:?} {params:?}");
        }
    }
}

#[test]
fn samples_are_texts_of_their_own_seeds_and_read_the_prompt_once() {
    let (model, draft) = models();
    for (prompt, guesses) in [("abcabc", false), (&"many words. ".repeat(6), true)] {
        for params in settings() {
            let params = SamplingParams { seed: Some(u64::MAX - 3), ..params };
            let mut engine = Engine::new(model).unwrap();
            if guesses {
                let source = Source::Model(DraftModel::new(draft, model).unwrap());
                engine = engine.with_drafter(Drafter { source, tokens: 3, rule: Rule::Coupled });
            }
            let mut first = text(model, prompt, &params, 10);
            while engine.read_ahead(&mut [&mut first], 1).unwrap() {}
            let mut samples: Vec<Text> = (0..5).map(|j| first.sample(j)).collect();
            let seeds: Vec<u64> = samples.iter().map(Text::seed).collect();
            let expected: Vec<u64> = (0..5).map(|j| params.check().unwrap().sample(j).seed()).collect();
            assert_eq!(seeds, expected);
            let grown = together(&mut engine, &mut samples);
            for (seed, grown) in seeds.into_iter().zip(grown) {
                let own = SamplingParams { seed: Some(seed), ..params.clone() };
                assert_eq!(plain(grown), alone(model, prompt, &own, 10), "{own:?}");
            }
            // All but the last token once, and that for each sample.
            assert_eq!(engine.timing().prompt.0, prompt.len() - 1 + 5);
        }
    }
}

#[test]
fn a_text_that_reuses_an_earlier_one_reads_only_what_is_new() {
    let (model, draft) = models();
    let params = SamplingParams { seed: Some(3), temperature: 0.4, ..Default::default() };
    let source = || Source::Model(DraftModel::new(draft, model).unwrap());
    for (first, second, fresh) in [
        ("a question", "a question, and more of it", 16),
        ("a question", "a quarrel", 5),
        ("a question", "a question", 1),
        ("a question", "a", 1),
        ("one", "two", 3),
    ] {
        let mut earlier = [text(model, first, &params, 5)];
        let mut engine =
            Engine::new(model).unwrap().with_drafter(Drafter { source: source(), tokens: 2, rule: Rule::Coupled });
        together(&mut engine, &mut earlier);
        let [earlier] = earlier;
        // What was written must not happen to be what follows.
        assert_ne!(earlier.written()[0], u32::from(b','));
        let later = text(model, second, &params, 12);
        let mut engine =
            Engine::new(model).unwrap().with_drafter(Drafter { source: source(), tokens: 2, rule: Rule::Coupled });
        let grown = together(&mut engine, &mut [later.reusing(earlier.clone())]).remove(0);
        assert_eq!(plain(grown), alone(model, second, &params, 12), "{second:?} after {first:?}");
        assert_eq!(engine.timing().prompt.0, fresh, "{second:?} after {first:?}");

        let prompt = model.tokenizer().encode(second, false).unwrap();
        let sampling = params.check().unwrap();
        let generation = Generation::new(model, prompt.clone(), sampling, edits(&prompt), 12).unwrap();
        let mut generation = generation.reusing(earlier);
        let outcomes: Vec<Outcome> = generation.by_ref().map(Result::unwrap).collect();
        assert_eq!(outcomes, alone(model, second, &params, 12).0);
        assert_eq!((generation.timing().prompt.0, generation.into_text().prompt_len()), (fresh, prompt.len()));
    }
}

/// Texts with coupled guesses, of several seeds and settings, which must be those without; what became of the guesses.
fn coupled<'m>(source: impl Fn() -> Source<'m>, prompts: &[&str]) -> Drafts {
    let (model, _) = models();
    let mut all = Drafts::default();
    for params in settings() {
        for tokens in [1, 2, 4, 9] {
            let drafter = Drafter { source: source(), tokens, rule: Rule::Coupled };
            let mut engine = Engine::new(model).unwrap().with_drafter(drafter);
            let cases: Vec<(&str, SamplingParams)> = prompts
                .iter()
                .flat_map(|prompt| (1..=4).map(|seed| (*prompt, SamplingParams { seed: Some(seed), ..params.clone() })))
                .collect();
            // Beyond the context of 90 and within it.
            for length in [100, 17] {
                let mut texts: Vec<Text> =
                    cases.iter().map(|(prompt, params)| text(model, prompt, params, length)).collect();
                let grown = together(&mut engine, &mut texts);
                for ((prompt, params), grown) in cases.iter().zip(grown) {
                    let expected = alone(model, prompt, params, length);
                    assert_eq!(plain(grown), expected, "{prompt:?} {params:?} by {tokens}");
                }
            }
            let Drafts { drafted, accepted, .. } = engine.timing().drafts;
            all.drafted += drafted;
            all.accepted += accepted;
        }
    }
    all
}

#[test]
fn coupled_guesses_of_the_text_itself_change_nothing() {
    let drafts = coupled(|| Source::Ngram, &["ababab", "one two one"]);
    assert!(drafts.accepted > 50 && drafts.accepted < drafts.drafted, "{drafts:?}");
}

#[test]
fn coupled_guesses_of_another_model_change_nothing() {
    let (model, draft) = models();
    let drafts = coupled(|| Source::Model(DraftModel::new(draft, model).unwrap()), &["a", "once upon"]);
    assert!(drafts.accepted > 50 && drafts.accepted < drafts.drafted, "{drafts:?}");
}

#[test]
fn coupled_guesses_of_the_same_model_are_all_right() {
    let (model, _) = models();
    let drafts = coupled(|| Source::Model(DraftModel::new(model, model).unwrap()), &["a", "once upon"]);
    assert!(drafts.accepted == drafts.drafted && drafts.drafted > 1000, "{drafts:?}");
}

#[test]
fn a_draft_model_of_a_shorter_context_guesses_as_far_as_it_reads() {
    let (model, _) = models();
    let short = load("short", &sized(20));
    let drafts = coupled(|| Source::Model(DraftModel::new(&short, model).unwrap()), &["a", &"b".repeat(30)]);
    assert!(drafts.accepted == drafts.drafted && drafts.drafted > 100, "{drafts:?}");
}

/// A fault in the middle of a draft must neither come early nor take tokens away.
#[test]
fn what_fails_fails_at_the_same_token_with_guesses() {
    let (model, draft) = models();
    // Each time a token is written its logit grows by 1e38, beyond f32 at the fourth.
    let params = SamplingParams { frequency_penalty: -1e38, seed: Some(5), ..Default::default() };
    let expected = alone(model, "ab", &params, 40);
    assert!(
        expected.0.len() == 4 && expected.1.as_ref().is_err_and(|error| error.contains("position 6")),
        "{expected:?}"
    );
    for tokens in [1, 2, 3, 8] {
        let sources = [Source::Ngram, Source::Model(DraftModel::new(draft, model).unwrap())];
        for source in sources {
            let mut engine = Engine::new(model).unwrap().with_drafter(Drafter { source, tokens, rule: Rule::Coupled });
            // Its neighbour goes on.
            let calm = SamplingParams { frequency_penalty: 0.0, ..params.clone() };
            let mut texts = [text(model, "ab", &params, 40), text(model, "ab", &calm, 40)];
            let mut grown = together(&mut engine, &mut texts).into_iter().map(plain);
            assert_eq!(grown.next().unwrap(), expected, "by {tokens}");
            assert_eq!(grown.next().unwrap(), alone(model, "ab", &calm, 40), "by {tokens}");
        }
    }
}

#[test]
fn a_draft_model_with_another_vocabulary_is_refused() {
    let (model, _) = models();
    let renamed = |edit: fn(&mut Vec<String>)| {
        let mut tiny = sized(90);
        let (_, value) = tiny.metadata.iter_mut().find(|(key, _)| key == "tokenizer.ggml.tokens").unwrap();
        match value {
            Value::Texts(tokens) => edit(tokens),
            _ => panic!("tokens are texts"),
        }
        load("renamed", &tiny)
    };
    let swapped = renamed(|tokens| tokens.swap(65, 66));
    let error = DraftModel::new(&swapped, model).err().unwrap().to_string();
    assert_eq!(error, "token 65 of the draft model is \"B\", must be \"A\" as in the model");
    let mut fewer = Tiny::llama();
    fewer.metadata.retain(|(key, _)| key != "tokenizer.ggml.token_type");
    fewer.metadata.iter_mut().filter(|(key, _)| key == "tokenizer.ggml.tokens").for_each(|(_, value)| {
        if let Value::Texts(tokens) = value {
            tokens.truncate(257);
        }
    });
    let error = DraftModel::new(&load("fewer", &fewer), model).err().unwrap().to_string();
    assert_eq!(error, "the draft model has a vocabulary of 257 tokens, must be that of the model, 258");
}

/// The settings of the statistics: few tokens, none of which ends the text.
fn narrow(draw: Draw) -> SamplingParams {
    SamplingParams { temperature: 0.6, top_k: 6, draw, seed: Some(2024), ..Default::default() }
}

fn narrow_text(model: &Model, prompt: &str, draw: Draw) -> Text {
    let tokens = model.tokenizer().encode(prompt, false).unwrap();
    let bias = LogitBias::new([(97, 1.0), (98, 0.7)]).unwrap();
    let edits = OwnedEdits { bias, banned: [99, 256, 257].into(), ..edits(&tokens) };
    Text::new(model, tokens, narrow(draw).check().unwrap(), edits, 40).unwrap()
}

/// The probabilities of the next token under [`narrow`], from the logits in f64.
fn probabilities(model: &Model, tokens: &[u32]) -> Vec<f64> {
    let mut hidden = model.forward(&mut [(&mut model.new_sequence(), tokens)]).unwrap();
    hidden.drain(..hidden.len() - model.config().dim);
    let mut logits: Vec<f64> =
        FusedHead::new(model.head()).unwrap().logits(&hidden).unwrap().into_iter().map(f64::from).collect();
    logits[97] += 1.0;
    logits[98] += 0.7;
    [99, 256, 257].into_iter().for_each(|id| logits[id] = f64::NEG_INFINITY);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let weight = |id: usize| if order[..6].contains(&id) { (logits[id] / 0.6).exp() } else { 0.0 };
    let weights: Vec<f64> = (0..logits.len()).map(weight).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

/// The probabilities of the next two tokens, one pair after the other.
fn pairs(model: &Model, prompt: &str) -> Vec<f64> {
    let tokens = model.tokenizer().encode(prompt, false).unwrap();
    let first = probabilities(model, &tokens);
    let with = |(id, p): (usize, &f64)| {
        let next =
            if *p > 0.0 { probabilities(model, &[&tokens[..], &[id as u32]].concat()) } else { vec![0.0; first.len()] };
        next.into_iter().map(|next| next * p).collect::<Vec<f64>>()
    };
    first.iter().enumerate().flat_map(with).collect()
}

/// By rejection the first two tokens of 4000 texts follow the model, whoever guesses, though other guesses give other
/// tokens. Each of the four comparisons has a false alarm of [`chi::FALSE_ALARM`], and its seed is fixed.
#[test]
fn tokens_verified_by_rejection_follow_the_model() {
    let (model, draft) = models();
    let prompt = "abcbabab";
    let expected = pairs(model, prompt);
    for draw in [Draw::Gumbel, Draw::InverseCdf] {
        for source in [Source::Ngram, Source::Model(DraftModel::new(draft, model).unwrap())] {
            let guessed = matches!(source, Source::Model(_));
            let drafter = Drafter { source, tokens: 3, rule: Rule::Rejection };
            let mut engine = Engine::new(model).unwrap().with_drafter(drafter);
            let first = narrow_text(model, prompt, draw);
            let mut counts = vec![0; expected.len()];
            for batch in 0..8 {
                let mut texts: Vec<Text> = (0..500).map(|j| first.sample(batch * 500 + j)).collect();
                loop {
                    let mut open: Vec<&mut Text> = texts.iter_mut().filter(|text| text.written().len() < 2).collect();
                    if open.is_empty() {
                        break;
                    }
                    engine.step(&mut open).unwrap().into_iter().for_each(|step| assert!(step.is_ok()));
                }
                texts
                    .iter()
                    .for_each(|text| counts[text.written()[0] as usize * 258 + text.written()[1] as usize] += 1);
            }
            let Drafts { drafted, accepted, steps, .. } = engine.timing().drafts;
            assert!(accepted > 1000 && accepted < drafted && steps > 4000, "{accepted} of {drafted}");
            let p = chi::p_value(&counts, &expected);
            assert!(p > chi::FALSE_ALARM, "p = {p} with {draw:?}, {accepted} of {drafted} accepted");
            // The test can tell the model from the one that guesses.
            assert!(!guessed || chi::p_value(&counts, &pairs(draft, prompt)) < chi::FALSE_ALARM);
        }
    }
}

#[test]
fn rejection_gives_one_text_a_seed_in_any_company_and_accepts_all_that_the_same_model_guesses() {
    let (model, draft) = models();
    for guesser in [draft, model] {
        let grow = |seeds: &[u64]| {
            let source = Source::Model(DraftModel::new(guesser, model).unwrap());
            let mut engine =
                Engine::new(model).unwrap().with_drafter(Drafter { source, tokens: 4, rule: Rule::Rejection });
            let params = |seed: &u64| SamplingParams { seed: Some(*seed), temperature: 0.5, ..Default::default() };
            let mut texts: Vec<Text> = seeds.iter().map(|seed| text(model, "abc", &params(seed), 30)).collect();
            (together(&mut engine, &mut texts), engine.timing().drafts)
        };
        let (all, drafts) = grow(&[1, 2, 3, 4, 5]);
        for (seed, grown) in (1..=5).zip(all) {
            assert_eq!(grow(&[seed]).0, [grown]);
        }
        assert_eq!(drafts.accepted == drafts.drafted, std::ptr::eq(guesser, model), "{drafts:?}");
    }
}

#[test]
fn an_empty_prompt_and_one_beyond_the_context_are_refused() {
    let (model, _) = models();
    let sampling = SamplingParams::default().check().unwrap();
    let new = |prompt| Text::new(model, prompt, sampling, OwnedEdits::default(), 5);
    assert!(matches!(new(vec![]), Err(GenerationError::EmptyPrompt)));
    assert_eq!(new(vec![97; 91]).err().unwrap().to_string(), "91 tokens exceed the model's context of 90");
    let mut full = new(vec![97; 90]).unwrap();
    let mut engine = Engine::new(model).unwrap();
    while engine.read_ahead(&mut [&mut full], PIECE).unwrap() {}
    assert_eq!(together(&mut engine, &mut [full])[0].0.len(), 1);
}
