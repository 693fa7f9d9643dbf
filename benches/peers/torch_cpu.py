"""PyTorch on the CPU, with the filters of transformers; see benches/README.md."""

import numpy as np
import torch
import transformers
from common import median_us, serve
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

torch.set_num_threads(1)


def draw(input, temperature, top_k, top_p, min_p, logprobs, budget_ms, **_):
    logits = torch.from_numpy(np.fromfile(input, dtype=np.float32))[None]
    warpers = [TemperatureLogitsWarper(temperature)] if temperature > 0 else []
    warpers += [TopKLogitsWarper(top_k)] if top_k > 0 else []
    warpers += [TopPLogitsWarper(top_p)] if top_p < 1 else []
    warpers += [MinPLogitsWarper(min_p)] if min_p > 0 else []

    def call():
        scores = logits
        for warper in warpers:
            scores = warper(None, scores)
        if logprobs:
            torch.log_softmax(scores, -1).topk(logprobs)
        if temperature == 0:
            return scores.argmax(-1).item()
        return torch.multinomial(torch.softmax(scores, -1), 1).item()

    with torch.no_grad():
        return median_us(call, budget_ms)


serve(f"torch {torch.__version__}, transformers {transformers.__version__}, one thread", draw=draw)
