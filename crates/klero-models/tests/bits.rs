//! A hidden state has the same bits for any chunking, any batch mates and any number of threads.

mod support;

use klero_models::Sequence;
use support::{Random, model, with_threads};

/// A prompt longer than the rows that the decoder takes at a time.
fn prompt() -> Vec<u32> {
    let text = "The lot is cast into the lap, but its every decision is from chance. 1, 2, 3 … 2048! ".repeat(3);
    let tokens = model().tokenizer().encode(&text, false).unwrap();
    assert!(tokens.len() > 70);
    tokens
}

fn bits(hidden: &[f32]) -> Vec<u32> {
    hidden.iter().map(|h| h.to_bits()).collect()
}

/// Feeds `tokens` to a new sequence in pieces that end at `cuts`.
fn feed(tokens: &[u32], cuts: impl IntoIterator<Item = usize>) -> Vec<u32> {
    let mut sequence = model().new_sequence();
    let mut hidden = Vec::new();
    for cut in cuts.into_iter().chain([tokens.len()]) {
        let from = sequence.len();
        hidden.extend(model().forward(&mut [(&mut sequence, &tokens[from..cut])]).unwrap());
    }
    bits(&hidden)
}

#[test]
fn chunks_do_not_matter() {
    let tokens = prompt();
    let whole = feed(&tokens, []);
    assert!(whole == feed(&tokens, 1..tokens.len()), "one by one");
    let mut random = Random(1);
    for _ in 0..2 {
        let mut cuts: Vec<usize> = (0..random.below(6)).map(|_| random.below(tokens.len())).collect();
        cuts.sort_unstable();
        assert!(whole == feed(&tokens, cuts.clone()), "cut at {cuts:?}");
    }
}

#[test]
fn threads_do_not_matter() {
    let tokens = prompt();
    let whole = with_threads(1, || feed(&tokens, []));
    assert!(whole == with_threads(2, || feed(&tokens, [])));
    assert!(whole == with_threads(3, || feed(&tokens, tokens.len() - 9..tokens.len())));
}

#[test]
fn batch_mates_do_not_matter() {
    let tokens = prompt();
    let dim = model().config().dim;
    let prompts = [&tokens[..5], &tokens[20..65], &tokens[7..8], &tokens[3..70]];
    let alone: Vec<Vec<u32>> = prompts.iter().map(|prompt| feed(prompt, [])).collect();

    // All together, each with a random number of its tokens (perhaps none) at every step.
    let mut random = Random(2);
    let mut sequences: Vec<Sequence> = prompts.iter().map(|_| model().new_sequence()).collect();
    let mut together: Vec<Vec<u32>> = vec![vec![]; prompts.len()];
    while sequences.iter().zip(prompts).any(|(sequence, prompt)| sequence.len() < prompt.len()) {
        let part = |(sequence, prompt): (&Sequence, &&[u32])| random.below(prompt.len() - sequence.len() + 1);
        let parts: Vec<usize> = sequences.iter().zip(&prompts).map(part).collect();
        let mut batch: Vec<_> = sequences
            .iter_mut()
            .zip(prompts)
            .zip(&parts)
            .map(|((sequence, prompt), part)| {
                let fed = sequence.len();
                (sequence, &prompt[fed..fed + part])
            })
            .collect();
        let hidden = bits(&model().forward(&mut batch).unwrap());
        let mut rest = &hidden[..];
        for (part, mine) in parts.iter().zip(&mut together) {
            let (states, others) = rest.split_at(part * dim);
            mine.extend(states);
            rest = others;
        }
    }
    assert!(alone == together);
}

#[test]
fn a_truncated_sequence_goes_on_as_if_the_rest_had_never_been() {
    let tokens = prompt();
    let mut sequence = model().new_sequence();
    model().forward(&mut [(&mut sequence, &tokens[..30])]).unwrap();
    let mut copy = sequence.clone();
    sequence.truncate(12);
    assert_eq!(sequence.len(), 12);
    let again = model().forward(&mut [(&mut sequence, &tokens[12..40]), (&mut copy, &tokens[30..40])]).unwrap();
    let whole = feed(&tokens[..40], []);
    let dim = model().config().dim;
    assert!(bits(&again[..28 * dim]) == whole[12 * dim..]);
    assert!(bits(&again[28 * dim..]) == whole[30 * dim..]);
}
