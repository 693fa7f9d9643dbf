"""Ways to a token on a GPU with PyTorch: its matmul alone, then draws from its logits; see benches/README.md.

The argument is the method: matmul, multinomial, race, fi1, fi2, filtered, flashsampling. All take bf16 hidden states and weights;
draws are with temperature 0.8.
"""

import sys

import torch
from common import serve

METHOD = sys.argv[1]
T = 0.8
held = {}


def tensors(dim, vocabulary, rows):
    """The weights of a shape, one at a time, and hidden states."""
    if held.get("shape") != (dim, vocabulary):
        held.clear()
        torch.cuda.empty_cache()
        held["shape"] = (dim, vocabulary)
        held["weights"] = torch.randn(vocabulary, dim, device="cuda", dtype=torch.bfloat16).mul_(0.02)
    return held["weights"], torch.randn(rows, dim, device="cuda", dtype=torch.bfloat16)


def multinomial(weights, hidden):
    return torch.multinomial(torch.softmax((hidden @ weights.t()).float() / T, -1), 1)


def race(weights, hidden):
    logits = (hidden @ weights.t()).float() / T
    return (torch.softmax(logits, -1) / torch.empty_like(logits).exponential_()).argmax(-1)


def ways():
    """A function of weights and hidden states for the method."""
    if METHOD in ("multinomial", "race"):
        compiled = torch.compile({"multinomial": multinomial, "race": race}[METHOD], dynamic=True)
        return lambda weights, hidden: lambda: compiled(weights, hidden)
    if METHOD == "matmul":

        def matmul(weights, hidden):
            out = torch.empty(len(hidden), len(weights), device="cuda", dtype=torch.bfloat16)
            return lambda: torch.mm(hidden, weights.t(), out=out)

        return matmul
    if METHOD == "flashsampling":
        from fused_mm_sampling.core import fused_mm_sample_triton

        temperature = torch.tensor(T, device="cuda")
        return lambda weights, hidden: lambda: fused_mm_sample_triton(weights, hidden, 1, temperature, seed=0)
    from flashinfer import sampling

    def fi2(weights, hidden):
        return lambda: sampling.sampling_from_logits((hidden @ weights.t()).float() / T)

    def fi1(weights, hidden):
        k, p = (50, 0.95) if METHOD == "filtered" else (weights.shape[0], 1.0)
        return lambda: sampling.top_k_top_p_sampling_from_logits((hidden @ weights.t()).float() / T, k, p)

    return fi2 if METHOD == "fi2" else fi1


make = ways()
calls = {}


def prepare(dim, vocabulary, rows, graph):
    key = (dim, vocabulary, rows, graph)
    if key not in calls:
        if held.get("shape") != (dim, vocabulary):
            calls.clear()
        call = make(*tensors(dim, vocabulary, rows))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        stream.synchronize()
        if graph:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured, stream=stream):
                call()
            calls[key] = (captured.replay, captured, call)
        else:
            calls[key] = (call,)
    return calls[key][0]


def fused(method, dim, vocabulary, rows, graph, budget_ms):
    call = prepare(dim, vocabulary, rows, graph)

    def us(count):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / count

    return us(max(5, min(200, int(budget_ms * 1e3 / us(2)))))


serve(f"torch {torch.__version__}", fused=fused)
