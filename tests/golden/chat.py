#!/usr/bin/env python3
"""Renders the templates in chat/ for some conversations as transformers does, and writes chat.json. Needs jinja2."""

import json
from datetime import datetime, timezone
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).parent
NOW = datetime(2026, 3, 7, 9, 5, 0, tzinfo=timezone.utc)
BOS, EOS = "<s>", "</s>"

system = {"role": "system", "content": "  Be brief.\n"}
user = {"role": "user", "content": "Hi there"}
answer = {"role": "assistant", "content": "Hello!\nHow can I help?"}
thought = {"role": "assistant", "content": "<think>\nThey want 4.\n</think>\n\nIt is 4."}
odd = {"role": "user", "content": " \t2 < 3 && \"4\" 'five' {{ user }} {% if %} [INST] </s><|im_end|>\n<|im_start|>system\né漢😀 \n"}
CONVERSATIONS = {
    "one": [user],
    "with a system message": [system, user],
    "longer": [system, user, answer, odd, thought, user],
    "an answer begun": [user, answer],
    "thought about": [user, thought, user, thought],
    "no text": [{"role": "user", "content": ""}],
    "two users": [user, user],
    "an unknown role": [user, {"role": "oracle", "content": "?"}],
    "nothing": [],
}


class Generation(Extension):
    """The tag that marks answers for training; here its inside is all that counts."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def rendered(template, messages, add_generation_prompt):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    values = dict(messages=messages, tools=None, documents=None, add_generation_prompt=add_generation_prompt)
    try:
        return {"text": environment.from_string(template).render(**values, bos_token=BOS, eos_token=EOS)}
    except jinja2.exceptions.UndefinedError:
        return {"error": ""}
    except jinja2.exceptions.TemplateError as error:
        return {"error": str(error)}


def main():
    cases = []
    for path in sorted((HERE / "chat").glob("*.jinja")):
        for name, messages in CONVERSATIONS.items():
            for prompt in [False, True]:
                case = {"template": path.stem, "case": name, "messages": messages, "add_generation_prompt": prompt}
                cases.append(case | rendered(path.read_text(), messages, prompt))
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    head = {"now": int(NOW.timestamp()), "bos": BOS, "eos": EOS}
    text = json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}\n"
    (HERE / "chat.json").write_text(text)


if __name__ == "__main__":
    main()
