#!/usr/bin/env python3
"""What transformers makes of Gemma 3 270M in f32, its weights expanded from the GGUF file, without rounding activations.

    gemma3.py expect MODEL.gguf    prints, for every text of tests/golden/models.json, the logprobs of the five tokens there
    gemma3.py check MODEL.gguf     compares that with `gemma3.json`, which holds what was printed once

Needs torch, transformers, gguf and accelerate.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

here = Path(__file__).parent
command, file = sys.argv[1], Path(sys.argv[2])
model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
golden = here.parents[3] / "tests/golden/models.json"
texts = []
for example in json.loads(golden.read_text()):
    if example["model"] != "gemma3-270m":
        continue
    with torch.no_grad():
        logits = model(torch.tensor([example["tokens"]])).logits[0, -1].double()
    logprobs = torch.log_softmax(logits, -1)
    texts.append([round(logprobs[token].item(), 4) for token, _ in example["top5"]])
if command == "expect":
    print(json.dumps(texts).replace("], ", "],\n"))
else:
    recorded = json.loads((here / "gemma3.json").read_text())
    apart = max(abs(a - b) for f, r in zip(texts, recorded, strict=True) for a, b in zip(f, r, strict=True))
    assert apart < 1e-3, apart
    print(f"{file.name} is as recorded")
