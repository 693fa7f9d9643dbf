"""What the peers in Python share: requests a line, answers a line."""

import json
import sys
import time


def median_us(call, budget_ms):
    """The median of as many calls as fit into the budget, at least three; one before is not counted."""
    call()
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < budget_ms / 1e3:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return sorted(times)[len(times) // 2]


def serve(version, **kinds):
    """Answers requests: `kinds` maps a request's kind to a function that returns microseconds, or None."""
    for line in sys.stdin:
        request = json.loads(line)
        kind = request.pop("kind")
        if kind == "version":
            answer = {"version": version}
        else:
            us = kinds[kind](**request) if kind in kinds else None
            answer = {"skip": "it does not do that"} if us is None else {"us": us}
        print(json.dumps(answer), flush=True)
