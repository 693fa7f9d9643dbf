#!/usr/bin/env python3
"""Tiny models with random weights, in the layout of the Hugging Face hub, and what transformers makes of them.

    models.py write FOLDER     writes the models; needs Python's standard library only
    models.py expect FOLDER    prints, as JSON, token ids and hidden states by transformers (needs torch and transformers)
    models.py check FOLDER     compares that with `expected.json`, which holds what was printed once

The weights come from a small generator of their own, so they are the same everywhere; the tests write them anew each time
and compare Klero's hidden states with `expected.json`.
"""

import json
import math
import struct
import sys
from pathlib import Path

TEXTS = [
    "The lot is cast into the lap,\n\n  12345 times!",
    "naïve café — 日本語 🎲",
    "don't <|end|> stop",
    "  two  spaces\tand a tab ",
]
WORDS = ["the", "lot", "is", "cast", "into", "lap", "times", "two", "spaces", "and", "tab", "stop", "end", "don"]


# Models

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "rope_theta": 500.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "attention_bias": False,
    "architectures": ["LlamaForCausalLM"],
}
QWEN2 = {
    **{key: LLAMA[key] for key in LLAMA if key not in ("rope_scaling", "attention_bias")},
    "model_type": "qwen2",
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "architectures": ["Qwen2ForCausalLM"],
}
QWEN3 = {
    **{key: QWEN2[key] for key in QWEN2 if key != "rope_theta"},
    "model_type": "qwen3",
    "head_dim": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "attention_bias": False,
    "architectures": ["Qwen3ForCausalLM"],
}
GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "num_hidden_layers": 4,
    "intermediate_size": 48,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "query_pre_attn_scalar": 20,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "architectures": ["Gemma3ForCausalLM"],
}
# The same in the newer layout, where the rotary embedding's numbers stand together.
GEMMA3_NEW = {
    **{key: GEMMA3[key] for key in GEMMA3 if not key.startswith("rope_")},
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
    },
}

# name: configuration, type of the weights, number of files, tokenizer
MODELS = {
    "llama": (LLAMA, "BF16", 1, "bytes"),
    "qwen2": (QWEN2, "F32", 3, "bytes"),
    "qwen3": (QWEN3, "F16", 1, "bytes"),
    "gemma3": (GEMMA3, "F32", 1, "pieces"),
    "gemma3-new": (GEMMA3_NEW, "F32", 1, "pieces"),
}


def tensors(config, vocabulary):
    """Names and shapes, as transformers has them."""
    kind, dim, wide = config["model_type"], config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim", dim // heads)
    yield "model.embed_tokens.weight", [vocabulary, dim]
    for layer in range(config["num_hidden_layers"]):
        part = f"model.layers.{layer}."
        for name, rows in [("q", heads * head), ("k", kv_heads * head), ("v", kv_heads * head)]:
            yield f"{part}self_attn.{name}_proj.weight", [rows, dim]
            if kind == "qwen2":
                yield f"{part}self_attn.{name}_proj.bias", [rows]
        yield f"{part}self_attn.o_proj.weight", [dim, heads * head]
        if kind in ("qwen3", "gemma3_text"):
            yield f"{part}self_attn.q_norm.weight", [head]
            yield f"{part}self_attn.k_norm.weight", [head]
        yield f"{part}mlp.gate_proj.weight", [wide, dim]
        yield f"{part}mlp.up_proj.weight", [wide, dim]
        yield f"{part}mlp.down_proj.weight", [dim, wide]
        norms = ["input_layernorm", "post_attention_layernorm"]
        if kind == "gemma3_text":
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for norm in norms:
            yield f"{part}{norm}.weight", [dim]
    yield "model.norm.weight", [dim]
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", [vocabulary, dim]


def values(name, shape, kind):
    """Reproducible numbers: norms near one, other vectors small, matrices that keep the size of what they multiply."""
    state = 0
    for byte in name.encode():
        state = (state * 31 + byte + 1) % 2**64
    spread = math.sqrt(3 / shape[-1]) if len(shape) == 2 else 0.3
    middle = 1.0 if name.endswith("norm.weight") and kind != "gemma3_text" else 0.0
    for _ in range(math.prod(shape)):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield middle + spread * ((state >> 40) / 2**23 - 1)


def encode(numbers, dtype):
    if dtype == "BF16":
        # Cut to the upper half of a float; the numbers have no need to be rounded.
        return b"".join(struct.pack("<f", number)[2:] for number in numbers)
    letter = {"F32": "f", "F16": "e"}[dtype]
    return b"".join(struct.pack("<" + letter, number) for number in numbers)


def write_safetensors(path, named, kind, dtype):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in named:
        encoded = encode(values(name, shape, kind), dtype)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(encoded)]}
        data += encoded
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# Tokenizers


def alphabet():
    """The printable character of each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {byte: chr(byte) for byte in printable}
    return [spelled.get(byte) or chr(0x100 + others.index(byte)) for byte in range(256)]


def merges(tokens, space):
    """Merges that build the words letter by letter, alone and after a space."""
    found = []
    for word in WORDS:
        for whole in (word, space + word):
            for end in range(1, len(whole)):
                pair = [whole[:end], whole[end]]
                if pair not in found:
                    found.append(pair)
                if whole[: end + 1] not in tokens:
                    tokens.append(whole[: end + 1])
    return found


def added(first, texts):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": first + i, "content": text, **flags} for i, text in enumerate(texts)]


def byte_tokenizer():
    tokens = alphabet()
    found = merges(tokens, "Ġ")
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": added(len(tokens), ["<|end|>", "<|begin|>"]),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": found},
    }, {"eos_token": "<|end|>", "bos_token": None, "add_bos_token": False}


def piece_tokenizer():
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += ["▁"] + [chr(letter) for letter in range(0x21, 0x7F)]
    found = merges(tokens, "▁")
    template = [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    begin = {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    return {
        "version": "1.0",
        "added_tokens": added(0, ["<pad>", "<eos>", "<bos>", "<unk>"]) + added(len(tokens), ["<|end|>"]),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": template,
            "pair": template,
            "special_tokens": {"<bos>": begin},
        },
        "decoder": {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": found,
        },
    }, {"eos_token": "<eos>", "bos_token": "<bos>"}


TOKENIZERS = {"bytes": byte_tokenizer, "pieces": piece_tokenizer}


# The two commands


def write(folder):
    for name, (config, dtype, files, tokenizer) in MODELS.items():
        model = folder / name
        model.mkdir(parents=True, exist_ok=True)
        pipeline, specials = TOKENIZERS[tokenizer]()
        # Rounded up, as real vocabularies are: the last ids are padding.
        vocabulary = (len(pipeline["model"]["vocab"]) + len(pipeline["added_tokens"]) + 31) // 32 * 32
        ends = [token["id"] for token in pipeline["added_tokens"] if token["content"] == specials["eos_token"]]
        config = {**config, "vocab_size": vocabulary, "eos_token_id": ends[0], "bos_token_id": None}
        specials = {**specials, "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{{ messages }}"}
        for file, content in [("config", config), ("tokenizer", pipeline), ("tokenizer_config", specials)]:
            (model / f"{file}.json").write_text(json.dumps(content))
        named = list(tensors(config, vocabulary))
        if files == 1:
            write_safetensors(model / "model.safetensors", named, config["model_type"], dtype)
            continue
        places = {}
        for part in range(files):
            mine, file = named[part::files], f"model-{part + 1:05}-of-{files:05}.safetensors"
            write_safetensors(model / file, mine, config["model_type"], dtype)
            places.update({tensor: file for tensor, _ in mine})
        index = {"metadata": {}, "weight_map": places}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))


def expect(folder):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    models = {}
    for name in MODELS:
        tokenizer = AutoTokenizer.from_pretrained(folder / name)
        model = AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32, attn_implementation="eager")
        texts = []
        for text in TEXTS:
            tokens = tokenizer(text)["input_ids"]
            with torch.no_grad():
                hidden = model.model(torch.tensor([tokens])).last_hidden_state[0]
                logits = model.lm_head(hidden[-1])
            texts.append({
                "text": text,
                "tokens": tokens,
                "hidden": [[round(value, 5) for value in row] for row in hidden[-4:].tolist()],
                "logits": [round(value, 5) for value in logits[:24].tolist()],
            })
        models[name] = texts
    return models


def check(models):
    """Compares with what was recorded; other versions may round the last digit differently."""
    recorded = json.loads((Path(__file__).parent / "expected.json").read_text())
    assert models.keys() == recorded.keys(), "other models than recorded"
    for name in models:
        for found, expected in zip(models[name], recorded[name], strict=True):
            assert found["tokens"] == expected["tokens"], (name, found["text"])
            rows = zip(found["hidden"] + [found["logits"]], expected["hidden"] + [expected["logits"]], strict=True)
            apart = max(abs(a - b) for f, e in rows for a, b in zip(f, e, strict=True))
            assert apart < 1e-4, (name, found["text"], apart)
    print(f"{len(models)} models are as recorded")


if __name__ == "__main__":
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "write":
        write(folder)
    elif command == "expect":
        print(json.dumps(expect(folder)).replace("}, {", "},\n{").replace("]], \"", "]],\n\""))
    elif command == "check":
        check(expect(folder))
