//! `klero explain` on tensors.

mod support;

use support::{Folder, Ran, Tensor, command, klero, safetensors};

/// Explains a draw from logits whose softmax is (0.5, 0.3, 0.15, 0.05) and one id that can never be drawn.
fn explain(name: &str, args: &[&str]) -> Ran {
    let folder = Folder::new(name);
    let logits = [0.3f32, 0.05, 0.0, 0.5, 0.15].map(f32::ln);
    let rows = [[0.0; 5], logits].concat();
    let tensors = [Tensor::f32("row-17", &[5], &logits), Tensor::f32("step", &[2, 5], &rows)];
    let file = folder.write("t.safetensors", &safetensors(&tensors));
    klero(&[&["explain", "--tensors", &file], args].concat())
}

#[test]
fn a_race_shows_noise_and_score_and_what_was_removed() {
    let args = ["--logits", "row-17", "--seed", "42", "--position", "7", "--top-p", "0.9", "--top-k", "2"];
    let ran = explain("race", &args);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(ran.stdout, RACE);
}

const RACE: &str = "\
tensor row-17 of t.safetensors
temperature 1, top_p 0.9, top_k 2, Gumbel draw
seed 42, position 7: hash 476b5c34d3561a79

  rank      id     logit    chance    before    noise     score
▶    1       3    -0.693   50.00 %       0 %    1.422     0.728  ████████████████
     2       0    -1.204   30.00 %   50.00 %    0.594    -0.610  █████████▋
     3       4    -1.897   15.00 %   80.00 %  removed: rank 3 > top_k 2
     4       1    -2.996    5.00 %   95.00 %  removed: 0.950 before it > top_p 0.9

Drawn: token 3. Every token kept got noise from the hash;
its score, logit + noise = 0.728, is the greatest.
Of 4 possible tokens the filters kept 2, which hold 80.00 % of the probability.
Its probability was 62.50 % (logprob -0.4700) after temperature and filters,
50.00 % (logprob -0.6931) in the model's own distribution.
";

#[test]
fn an_inverse_cdf_draw_shows_the_line_and_u() {
    let args = ["--row", "1", "--logits", "step", "--seed", "42", "--position", "7", "--draw", "inverse_cdf"];
    let ran = explain("line", &[&args[..], &["--min-p", "0.2", "--shown", "2"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(ran.stdout, LINE);
}

const LINE: &str = "\
tensor step of t.safetensors, row 1
temperature 1, min_p 0.2, inverse CDF draw
seed 42, position 7: hash 476b5c34d3561a79, u = 0.278981936

  rank      id     logit    chance    before      from       to
     1       3    -0.693   50.00 %       0 %  0.315789 0.842105  ████████████████
▶    2       0    -1.204   30.00 %   50.00 %  0.000000 0.315789  █████████▋
       … and 2 more, 1 of them kept

Drawn: token 0. The tokens kept share the line from 0 to 1, in the order of their ids;
u = 0.278982 falls into its part, 0.000000 to 0.315789.
Of 4 possible tokens the filters kept 3, which hold 95.00 % of the probability.
Its probability was 31.58 % (logprob -1.1527) after temperature and filters,
30.00 % (logprob -1.2040) in the model's own distribution.
";

#[test]
fn biases_and_bans_are_shown() {
    let edits = ["--logit-bias", "1=2.5", "--ban", "3", "--ban", "2"];
    let filters = ["--top-p", "0.5", "--filter-order", "min_p_first"];
    let args = ["--logits", "row-17", "--seed", "42", "--position", "7"];
    let ran = explain("edits", &[&args[..], &edits, &filters].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(ran.stdout, EDITED);
}

const EDITED: &str = "\
tensor row-17 of t.safetensors
temperature 1, top_p 0.5, min_p first, Gumbel draw
token 1 +2.5, token 3 banned, token 2 banned
seed 42, position 7: hash 476b5c34d3561a79

  rank      id     logit    chance    before    noise     score
▶    1       1    -0.496   57.51 %       0 %    2.542     2.046  ████████████████  logit was -2.996
     2       0    -1.204   28.33 %   57.51 %  removed: better ones among what is left hold top_p 0.5
     3       4    -1.897   14.16 %   85.84 %  removed: better ones among what is left hold top_p 0.5

Drawn: token 1. Every token kept got noise from the hash;
its score, logit + noise = 2.046, is the greatest.
Of 3 possible tokens the filters kept 1, which hold 57.51 % of the probability.
Its probability was 100.00 % (logprob 0.0000) after temperature and filters,
5.00 % (logprob -2.9957) in the model's own distribution.
";

#[test]
fn halves_are_explained_as_their_widened_numbers() {
    let folder = Folder::new("explain-halves");
    let values = [0.5f32, 2.0, -1.25];
    let halves = values.map(half::f16::from_f32);
    let page = |tensor: Tensor| {
        let file = folder.write("t.safetensors", &safetensors(&[tensor]));
        klero(&["explain", "--tensors", &file, "--logits", "a", "--seed", "1"]).stdout
    };
    let wide = page(Tensor::f32("a", &[3], &values));
    assert!(wide.contains("Drawn: token"), "{wide}");
    assert_eq!(page(Tensor::f16("a", &[3], &halves)), wide);
}

#[test]
fn colours_come_only_where_they_are_wanted() {
    let folder = Folder::new("colours");
    let file = folder.write("t.safetensors", &safetensors(&[Tensor::f32("a", &[2], &[0.0, 1.0])]));
    let args = ["explain", "--tensors", &file, "--logits", "a", "--seed", "1"];
    let plain = command(&args).output().unwrap().stdout;
    let forced = command(&args).env("CLICOLOR_FORCE", "1").output().unwrap().stdout;
    let refused = command(&args).env("NO_COLOR", "1").output().unwrap().stdout;
    assert!(!plain.contains(&0x1b) && forced.contains(&0x1b));
    assert_eq!(plain, refused);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, code, expected) in [
        (&["--logits", "row-17", "--top-p", "0"][..], 2, "error: top_p is 0, must be in (0, 1]"),
        (&["--logits", "row-17", "--temperature", "nan"], 2, "error: temperature is NaN"),
        (&["--logits", "row-17", "--seed", "1.5"], 2, "an integer in −9223372036854775808"),
        (&["--logits", "row-17", "--shown", "0"], 2, "--shown"),
        (&["--prompt", "x", "--logits", "row-17"], 2, "cannot be used with"),
        (&[], 2, "--logits"),
        (&["--logits", "row-17", "--presence-penalty", "1"], 2, "error: penalties need a text: give --prompt"),
        (&["--logits", "row-17", "--ban", "5"], 1, "banned holds id 5, must be below 5"),
        (&["--logits", "none"], 1, "error: tensor `none` not found"),
        (&["--logits", "step"], 1, "error: tensor `step` has shape [2, 5]: give `row`"),
    ] {
        let ran = explain("refused", args);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(expected) && ran.stdout.is_empty(), "{ran:?}");
    }
}
