"""llama.cpp's sampler chain and its texts, through llama-cpp-python; see benches/README.md.

The chain is the usual one: top-k, top-p, min-p, temperature, then a draw. Filling the array of candidates from the logits
counts, as the chain cannot begin without it; it is done by NumPy, in one copy.
"""

import ctypes
import time

import llama_cpp
import numpy as np
from common import median_us, serve

CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def chain(temperature, top_k, top_p, min_p):
    smpl = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    add = lambda sampler: llama_cpp.llama_sampler_chain_add(smpl, sampler)
    if temperature == 0:
        add(llama_cpp.llama_sampler_init_greedy())
        return smpl
    if top_k > 0:
        add(llama_cpp.llama_sampler_init_top_k(top_k))
    if top_p < 1:
        add(llama_cpp.llama_sampler_init_top_p(top_p, 1))
    if min_p > 0:
        add(llama_cpp.llama_sampler_init_min_p(min_p, 1))
    add(llama_cpp.llama_sampler_init_temp(temperature))
    add(llama_cpp.llama_sampler_init_dist(1))
    return smpl


def draw(input, vocabulary, temperature, top_k, top_p, min_p, logprobs, budget_ms, **_):
    if logprobs:
        return None
    logits = np.fromfile(input, dtype=np.float32)
    blank = np.zeros(vocabulary, dtype=CANDIDATE)
    blank["id"] = np.arange(vocabulary)
    candidates = blank.copy()
    pointer = candidates.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
    smpl = chain(temperature, top_k, top_p, min_p)

    def call():
        candidates[:] = blank
        candidates["logit"] = logits
        array = llama_cpp.llama_token_data_array(data=pointer, size=vocabulary, selected=-1, sorted=False)
        llama_cpp.llama_sampler_apply(smpl, ctypes.byref(array))
        assert 0 <= array.selected < array.size
        return array.selected

    us = median_us(call, budget_ms)
    llama_cpp.llama_sampler_free(smpl)
    return us


models = {}


def generate(model, prompt, tokens, temperature, top_p, threads):
    key = (model, threads)
    if key not in models:
        models.clear()
        models[key] = llama_cpp.Llama(
            model, n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False, seed=1
        )
    llama = models[key]
    llama.reset()
    start, count = None, 0
    settings = {"temp": temperature, "top_p": top_p, "top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}
    text = llama.generate(llama.tokenize(prompt.encode()), **settings)
    for token in text:
        if start is None:
            start = time.perf_counter()
        elif token == llama.token_eos() or count == tokens:
            break
        else:
            count += 1
    return (time.perf_counter() - start) * 1e6 / max(count, 1)


serve(f"llama-cpp-python {llama_cpp.__version__}", draw=draw, generate=generate)
