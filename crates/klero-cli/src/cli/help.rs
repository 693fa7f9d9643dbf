//! What `--help` says after the list of arguments.

pub const GENERATE_HELP: &str = "\
The text goes to the standard output; the seed and the speed go to the standard error.

Several texts (more than one prompt, or -n) grow together, so that weights are read once for all.
Each is the very text that its prompt and its seed give alone. They are printed one after the
other, each under a heading, as soon as those before it have ended. Of n texts of a prompt the
first has the seed given, the others have seeds that follow from it, which are told.

With --json a line is written for each token, of all texts as they grow:
  prompt, sample     which text, from 0
  position           the number of tokens before it
  id, bytes          the token; of a control token the bytes are its name
  text               the whole characters that it completes, possibly none
  logprob, kept      its logprob after temperature and filters, and how many tokens they left
  raw_logprob, top_logprobs (id, text, bytes, logprob, raw_logprob of each), kept_ids, confidence
  (entropy, largest, smaller)
                     where asked for
and one for the end of each text:
  prompt, sample     which text
  seed               as text
  ended              \"token\" (the model ended it), \"length\", \"context\", \"stop\", \"interrupted\" or
                     \"failed\" (no token can be drawn: error says why)
  tokens, text       the number of its tokens, and all that was written, up to any stop string
A logprob of minus infinity is null.

Exit code: 0, 130 after Ctrl-C, 1 if something fails, 2 for arguments that make no sense.

Examples:
  klero generate -p 'The capital of France is'
  klero generate -p 'Once upon a time' --temperature 0.8 --top-p 0.95 --seed 42 --max-tokens 60
  klero generate -p 'Once upon a time' -p 'In the year 3000' -n 4 --seed 42
  klero generate -p 'The capital of France is' --max-tokens 5 --logprobs 3
  klero generate --prompt-file - --json --seed 42 <letter.txt
  klero generate --prompt-file letter.txt --draft ngram --draft-tokens 8
  klero generate -p 'Q: What is a lot?
A:' --stop 'Q:' -m SmolLM2-135M-Instruct.Q4_1.gguf --threads 2";

pub const DRAW_HELP: &str = "\
A request is a JSON object on a line of its own (blank lines are skipped):
  logits             name of a tensor [V], or [rows, V] with `row`
  hidden, weights    instead of logits: tensor [D], or [rows, D] with `row`; and tensor [V, D] in
                     F32, BF16 or F16, or GGUF blocks as U8 [V, bytes of a row]
  weights_type       of such blocks: \"q8_0\" (the default), \"q4_0\", \"q4_k\", \"q5_k\" or \"q6_k\"
  row                index into a two-dimensional tensor
  position           required: the number of tokens before the one that is drawn
  temperature, top_p, top_k, min_p, filter_order, repetition_penalty, frequency_penalty,
  presence_penalty, seed, draw, top_logprobs, raw_logprobs, kept_ids, confidence
                     sampling parameters; seed is an integer or the same as text, draw is \"gumbel\"
                     (the default) or \"inverse_cdf\", filter_order \"top_p_first\" (the default) or
                     \"min_p_first\"; the last three are true or false
  prompt_ids, output_ids
                     the text so far, for the penalties: arrays of ids, each as often as it stands
                     there; ids beyond the vocabulary change nothing
  logit_bias         {\"5\": -1.5}: what is added to the logit of an id
  banned             array of ids that may not be drawn
  allowed            array of the only ids that may be drawn, or instead of it
  allowed_bitmask    name of an I32 or U32 tensor [ceil(V / 32)], or [rows, ceil(V / 32)] with
                     `row`: bit id % 32 of word id / 32 is set where an id may be drawn
  ids                array of ids whose logprobs are told as logprobs_of
  samples            1..=1024: draw so many tokens, each with a seed of its own
  stream             \"target\" (the default) or \"mtp\"
  vocabulary         valid ids, where tensors are padded
  verify             {\"draft_token\": 5} with one of \"draft_logprobs\": \"name\" (a tensor [V], or
                     [rows, V] with a `row` here), \"one_hot\": true, \"coupled\": true; with the first
                     two optionally `delta`. Or \"draft_tokens\": [5, 9, ...], k ids: then logits or
                     hidden have k + 1 rows, draft_logprobs k, an allowed_bitmask k + 1 (or one for
                     all), and there is no `row`
Tensors of logits, hidden states and logprobs may be F32, F16 or BF16.

Each request gives a JSON line, in order: row (the request's number, from 0), status, token,
logprob, kept, log_normalizer, seed (as text), position; with verify also accepted,
accept_probability and draft_logprob; raw_logprob, top_logprobs, logprobs_of, kept_ids and
confidence (entropy, largest, smaller) where asked for. With samples this is told of the first, and
samples holds token, logprob and seed of each. With draft_tokens it is told of the token after
those accepted; accepted is their number, tokens they and that token, outcomes what is known of
each. A logprob of minus infinity is null. Status is \"ok\"; \"nan\", \"infinite\" or \"empty\" for
tensors that no token can be drawn from; or \"invalid\" for a bad request. If not ok, `error` says
why and the token is null.

Exit code: 0; 1 if any request was invalid (each is named with its line number on the standard
error, the others still run) or a file cannot be read. Bad numbers in tensors are results, not
invalid requests.

Examples:
  klero draw --tensors step.safetensors --requests requests.jsonl
  echo '{\"logits\":\"row-17\",\"top_p\":0.9,\"seed\":42,\"position\":9}' |
    klero draw --tensors step.safetensors --requests - --blacklist 0,2";

pub const EXPLAIN_EXAMPLES: &str = "\
Examples:
  klero explain -p 'The capital of France is' --temperature 0.8 --top-p 0.9 --seed 42
  klero explain -p 'Once upon a' --draw inverse_cdf --shown 20
  klero explain -p 'My favourite animal is the' --top-p 0.5 --seed 7 --svg draw.svg --png draw.png
  klero explain --tensors step.safetensors --logits row-17 --position 9 --seed 42";

pub const TOKENIZE_EXAMPLES: &str = "\
Each token is a line: its position, its id, its text in quotes; the bytes of a token that is not text
by itself; and whether it is a control token. How many there are goes to the standard error.
With --json: {\"count\": N, \"tokens\": [{\"position\", \"id\", \"text\", \"control\"}, ...]}, or the text of
--decode as {\"text\"}; where bytes are not UTF-8 the text is null and \"bytes\" holds them.
Exit code: 0; 1 if a file cannot be read or an id is not in the vocabulary; 2 for arguments that make
no sense.

Examples:
  klero tokenize -p 'The capital of France is'
  klero tokenize --control -p '<|im_start|>user'
  klero tokenize --ids --file prompt.txt
  klero tokenize --decode 504,3575,282,4649,314";

pub const DOCTOR_HELP: &str = "\
Told are the build, the processor and the instruction sets that the kernels use, threads, memory, CUDA,
models in Klero's and Hugging Face's caches, a self-test, and the speed of a draw and of reading memory.
The self-test draws from the worked examples of docs/law.md and from generated logits whose tokens are
known, and compares bits: fused and ready logits, one thread and all, a batch and its rows alone.
Exit code: 0 if all is well; 1 if a self-test fails or the default model is damaged.

Examples:
  klero doctor
  klero doctor --json | jq .self_test";

pub const COMPLETIONS_HELP: &str = "\
Examples:
  klero completions bash > ~/.local/share/bash-completion/completions/klero
  klero completions zsh > ~/.zfunc/_klero
  klero completions fish > ~/.config/fish/completions/klero.fish";

pub const MAN_HELP: &str = "\
Examples:
  klero man | man -l -
  klero man --dir ~/.local/share/man/man1";

pub const CHAT_HELP: &str = "\
A line is a message; one that ends in a backslash goes on in the next. Ctrl-C ends the answer being
written, Ctrl-D the chat. /help lists what can be asked of the chat itself: to undo or redo an
answer, change parameters, save and load. Where the standard input is no terminal, every line of
it is a message, and only the answers are written to the standard output.

An answer follows from the model, the messages before it, the parameters and the seed: the same
chat with the same seed says the same, also after it was saved and loaded.

Examples:
  klero chat
  klero chat --system 'You answer in one sentence.' --temperature 0.7 --top-p 0.9 --seed 42
  printf 'What is a lot?\\nAnd an urn?\\n' | klero chat --seed 42 --max-tokens 60";
