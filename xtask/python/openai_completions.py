"""OpenAI's Python client against a language model of a running `lrvd serve`: one JSON object of check names and failures.

    openai_completions.py URL [--key KEY]

Every check is a method below; a failure is the text of its exception, and null means that it passed. The exit status is 1 if one failed.
Texts are compared with those of `/v1/generate`, with the same tokens and numbers.
"""

import argparse
import json
import math
import sys
import traceback
import urllib.error
import urllib.request

import openai

PROMPT = "Tim saw a red car."
MESSAGES = [{"role": "user", "content": "Who saw a red car?"}]


def expect(found, expected, what):
    assert found == expected, f"{what} is {found!r}, expected {expected!r}"


def near(found, expected, what, limit=1e-3):
    assert len(found) == len(expected), f"{what}: {len(found)} values, expected {len(expected)}"
    for a, b in zip(found, expected):
        assert abs(a - b) < limit, f"{what}: {a}, expected {b}"


def raises(kind, call, param):
    try:
        call()
    except kind as error:
        expect(error.param, param, "the parameter of the error")
        return
    raise AssertionError(f"no {kind.__name__}")


class Checks:
    def __init__(self, url, key):
        self.url, self.key = url, key
        self.client = openai.OpenAI(api_key=key or "none", base_url=f"{url}/v1", max_retries=0, timeout=600)
        self.model = self.client.models.list().data[0].id

    def own(self, **body):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(f"{self.url}/v1/generate", json.dumps(body).encode(), headers)
        return json.load(urllib.request.urlopen(request))["texts"][0]

    def complete(self, **more):
        settings = {"model": self.model, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, **more}
        return self.client.completions.create(**settings)

    def a_completion_is_the_text_of_generate(self):
        own, found = self.own(prompt=PROMPT, max_tokens=8), self.complete(logprobs=2)
        choice = found.choices[0]
        expect(choice.text, own["text"], "the text")
        expect(choice.finish_reason, "stop" if own["stopped"] else "length", "the reason")
        expected = [math.log(token["probability"]) for token in own["tokens"]]
        near(choice.logprobs.token_logprobs[: len(expected)], expected, "the log-probabilities")
        for value, top in zip(choice.logprobs.token_logprobs, choice.logprobs.top_logprobs):
            expect(value, max(top.values()), "the most probable token")
        usage = found.usage
        expect([usage.prompt_tokens, usage.completion_tokens], [own["prompt_tokens"], len(own["tokens"])], "the usage")
        expect(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens, "the total")

    def an_echo_has_the_log_probabilities_of_the_prompt(self):
        text = self.complete().choices[0].text
        found = self.complete(prompt=PROMPT + text, max_tokens=0, echo=True, logprobs=0).choices[0]
        expect(found.text, PROMPT + text, "the text")
        expect(found.logprobs.token_logprobs[0], None, "the first log-probability")
        more = self.complete(prompt=PROMPT + text, max_tokens=1, echo=True, logprobs=0).choices[0]
        expect(len(more.logprobs.tokens), len(found.logprobs.tokens) + 1, "the number of tokens")
        near(more.logprobs.token_logprobs[1:-1], found.logprobs.token_logprobs[1:], "the log-probabilities")

    def prompts_are_answered_in_their_order(self):
        alone = [self.complete(prompt=prompt).choices[0].text for prompt in (PROMPT, "Lily")]
        found = self.complete(prompt=[PROMPT, "Lily"])
        expect([choice.index for choice in found.choices], [0, 1], "the list of places")
        expect([choice.text for choice in found.choices], alone, "the list of texts")

    def a_stop_cuts_the_text(self):
        whole = self.complete().choices[0].text
        stop = whole[3:6]
        found = self.complete(stop=[stop, "\n\n\n"]).choices[0]
        expect([found.text, found.finish_reason], [whole[: whole.index(stop)], "stop"], "the text")

    def a_seed_repeats_a_sample(self):
        samples = [self.complete(temperature=1.5, seed=seed, max_tokens=16).choices[0].text for seed in (1, 1, 2)]
        expect(samples[0], samples[1], "the text")
        assert samples[0] != samples[2], "two seeds have one text"

    def a_stream_has_the_parts_of_the_text(self):
        whole = self.complete(max_tokens=12)
        chunks = list(self.complete(max_tokens=12, stream=True, stream_options={"include_usage": True}))
        expect(chunks[-1].usage, whole.usage, "the usage")
        chunks.pop()
        expect("".join(chunk.choices[0].text for chunk in chunks), whole.choices[0].text, "the text")
        expect(chunks[-1].choices[0].finish_reason, whole.choices[0].finish_reason, "the reason")

    def a_conversation_is_continued(self):
        """Of a model without a chat template the error is one of the messages."""
        ask = lambda **more: self.client.chat.completions.create(
            model=self.model, messages=MESSAGES, max_completion_tokens=8, temperature=0, **more
        )
        try:
            own = self.own(messages=MESSAGES, max_tokens=8)
        except urllib.error.HTTPError:
            raises(openai.BadRequestError, ask, "messages")
            return
        found = ask(logprobs=True, top_logprobs=2).choices[0]
        expect([found.message.role, found.message.content], ["assistant", own["text"]], "the message")
        expected = [math.log(token["probability"]) for token in own["tokens"]]
        near([token.logprob for token in found.logprobs.content], expected, "the log-probabilities")
        parts = [chunk.choices[0].delta.content or "" for chunk in ask(stream=True)]
        expect("".join(parts), own["text"], "the text of the stream")

    def errors_name_their_field(self):
        raises(openai.BadRequestError, lambda: self.complete(n=2), "n")
        raises(openai.BadRequestError, lambda: self.complete(suffix="x"), "suffix")
        raises(openai.BadRequestError, lambda: self.complete(max_tokens=-1), "max_tokens")
        raises(openai.NotFoundError, lambda: self.complete(model="another"), "model")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--key")
    options = parser.parse_args()
    checks = Checks(options.url, options.key)
    found = {}
    for name in (name for name in vars(Checks) if not name.startswith("_") and name not in ("own", "complete")):
        try:
            getattr(checks, name)()
            found[name] = None
        except Exception:
            found[name] = traceback.format_exc()
    print(json.dumps(found, indent=1))
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
