"""The Python clients of decision models against a running `lrvd serve`: one JSON object of check names and failures.

    decision_clients.py URL --draws K [--key KEY]        # what `cargo xtask jevcompat` calls

Every check is a function below; a failure is the text of its exception, and null means that it passed. Numbers are compared
with `==`: an answer has the same bits whatever else is asked, by whatever client.
"""

import argparse
import asyncio
import json
import traceback

import langchain_openai.decisions as langchain_decisions
import langchain_typesafe
import openai
import typesafe_sdk
from typesafe_sdk import Choice, Noul, Score

STATE = {"message": "I was charged twice and want my money back 😡", "channel": "chat", "invoices": [4471, 4472]}
# A body beyond 1 KiB, which typesafe-sdk compresses.
LONG = {**STATE, "history": ["The customer wrote before, and the team answered that it is looked at."] * 20}
QUESTIONS = {
    "refund": Noul(instructions="Does the customer ask for money back?", criteria={"true": "a refund", "false": None}),
    "team": Choice(
        instructions=["Which team?", "Pick one."],
        criteria={"billing": "payments, refunds", "technical": None, "환불 🙂": {"owns": ["returns"]}},
    ),
    "urgency": Score(instructions={"scale": "urgency"}, criteria=["can wait", "today", {"label": "now"}]),
}
MORE = {
    "angry": {"type": "noul", "instructions": "Is the customer angry?"},
    "language": {"type": "choice", "instructions": "Which language?", "criteria": {"English": None, "other": None}},
}
# The same questions, as OpenAI's clients send them: one text for each instruction and option.
PLAIN = {
    "refund": {"type": "noul", "instructions": "Does the customer ask for money back?"},
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "payments, refunds", "technical": None}},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["can wait", "today", "now"]},
}
DECISIONS = [
    {"type": "predicate", "name": "refund", "instructions": "Does the customer ask for money back?"},
    {
        "type": "choice",
        "name": "team",
        "instructions": [{"type": "input_text", "text": "Which team?"}],
        "choices": [{"value": "technical"}, {"value": "billing", "description": "payments, refunds"}],
    },
    {
        "type": "score",
        "instructions": "How urgent?",
        "levels": [{"label": "can wait"}, {"label": "today"}, {"label": "now"}],
    },
]
INPUT = [{"role": "user", "content": [{"type": "input_json", "data": STATE}]}]


def expect(found, expected, what):
    assert found == expected, f"{what} is {found!r}, expected {expected!r}"


def raises(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


class Checks:
    def __init__(self, url, draws, key):
        self.url, self.draws, self.key = url, draws, key

    def typesafe(self, key=None, **more):
        key = key or self.key or "no-key"
        retry = typesafe_sdk.RetryPolicy(max_retries=0)
        return typesafe_sdk.TypeSafeClient(api_key=key, base_url=self.url, retry=retry, timeout=600, **more)

    def openai(self, key=None, kind=openai.OpenAI):
        return kind(api_key=key or self.key or "no-key", base_url=f"{self.url}/v1", max_retries=0, timeout=600)

    def ask(self, questions, state=STATE, **more):
        """The answers as they are on the wire, by the names of their questions."""
        with self.typesafe(**more) as client:
            return client.system_one(state, questions).raw_http_response.json()["answers"]

    def typesafe_reads_every_type(self):
        with self.typesafe() as client:
            found = client.system_one(STATE, QUESTIONS)
            names = [model.name for model in client.models.list().models]
        expect([found.model], names, "the model's name")
        assert found.usage.input_tokens > 0 and found.usage.output_tokens == 0
        noul, choice, score = found.nouls["refund"], found.choices["team"], found.scores["urgency"]
        assert 0 <= noul.noul <= 1
        expect(set(choice.probabilities), set(QUESTIONS["team"].criteria), "the set of options")
        expect(choice.choice, max(choice.probabilities, key=choice.probabilities.get), "the choice")
        expect(list(score.probabilities), [0, 1, 2], "the list of levels")
        expect(list(score.legend), [0, 1, 2], "the legend's levels")
        for answer in (choice, score):
            assert abs(sum(answer.probabilities.values()) - 1) < 1e-9, answer
            assert 0 <= answer.confidence <= 1, answer
        assert abs(score.score - sum(level * p for level, p in score.probabilities.items())) < 1e-9

    def typesafe_sees_own_fields(self):
        for name, answer in self.ask(QUESTIONS).items():
            expect(answer["x_draws"], self.draws, f"`x_draws` of `{name}`")
            expect(answer["x_mutual_information"] is None, self.draws == 0, f"no mutual information of `{name}`")
            expect(answer["x_calibrated"], True, f"`x_calibrated` of `{name}`")
            assert answer["x_entropy"] > 0

    def typesafe_async_gets_the_same(self):
        async def ask():
            key = self.key or "no-key"
            async with typesafe_sdk.AsyncTypeSafeClient(api_key=key, base_url=self.url, timeout=600) as client:
                return (await client.system_one(STATE, QUESTIONS)).raw_http_response.json()["answers"]

        expect(asyncio.run(ask()), self.ask(QUESTIONS), "the answer")

    def typesafe_gets_the_same_bits_whatever_else_is_asked(self):
        all_at_once = self.ask(QUESTIONS)
        for name, question in QUESTIONS.items():
            expect(self.ask({"🎯 " + name: question})["🎯 " + name], all_at_once[name], f"`{name}` alone")
        reversed_ = self.ask(dict(reversed(QUESTIONS.items())))
        company = self.ask({**MORE, **QUESTIONS})
        for name in QUESTIONS:
            expect(reversed_[name], all_at_once[name], f"`{name}` in another order")
            expect(company[name], all_at_once[name], f"`{name}` in company")

    def typesafe_may_compress(self):
        expect(self.ask(QUESTIONS, LONG), self.ask(QUESTIONS, LONG, compression=False), "the answer to a compressed body")

    def typesafe_raises_its_errors(self):
        with self.typesafe() as client:
            ask = lambda **more: client.system_one(**{"state": STATE, "questions": PLAIN, **more})
            raises(typesafe_sdk.TypeSafeNotFoundError, lambda: ask(model="another"))
            one = {"team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": None}}}
            raises(typesafe_sdk.TypeSafeUnprocessableEntityError, lambda: ask(questions=one))
        if self.key:
            with self.typesafe("wrong") as client:
                raises(typesafe_sdk.TypeSafeAuthenticationError, lambda: client.system_one(STATE, PLAIN))

    def openai_reads_every_type(self):
        client = self.openai()
        names = [model.id for model in client.models.list()]
        found = client.decisions.create(model=names[0], input=INPUT, questions=DECISIONS)
        expect([found.model], names, "the model's name")
        expect([answer.type for answer in found.answers], ["predicate", "choice", "score"], "the list of types")
        expect([answer.name for answer in found.answers], ["refund", "team", None], "the list of names")
        expect(found.usage.total_tokens, found.usage.input_tokens, "the number of tokens")
        expect([one.value for one in found.answers[1].probabilities], ["technical", "billing"], "the list of choices")
        expect([one.label for one in found.answers[2].probabilities], ["can wait", "today", "now"], "the list of levels")
        for answer in found.answers:
            expect(answer.x_draws, self.draws, "`x_draws`")

    def openai_gets_the_numbers_of_typesafe(self):
        predicate, choice, score = self.openai().decisions.create(model="jev-latest", input=INPUT, questions=DECISIONS).answers
        found = self.ask(PLAIN)
        expect(predicate.probability, found["refund"]["noul"], "the probability")
        by_value = {one.value: one.probability for one in choice.probabilities}
        expect(by_value, found["team"]["probabilities"], "the set of probabilities of the choice")
        by_level = {str(one.value): one.probability for one in score.probabilities}
        expect(by_level, found["urgency"]["probabilities"], "the set of probabilities of the score")
        expect([choice.choice, choice.confidence], [found["team"][key] for key in ("choice", "confidence")], "the choice")
        expect([score.score, score.confidence], [found["urgency"][key] for key in ("score", "confidence")], "the score")

    def openai_sends_conversations_and_flags(self):
        call = {"type": "function_call", "call_id": "1", "name": "invoices", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "1", "output": "two invoices"}
        items = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "I was charged twice."}, call, output]
        flags = {"type": "choice", "instructions": "Twice?", "choices": [{"value": True}, {"value": "true"}, {"value": False}]}
        found = self.openai().decisions.create(model="jev-latest", input=items, questions=[flags]).answers[0]
        expect([one.value for one in found.probabilities], [True, "true", False], "the list of choices")

    def openai_async_gets_the_same(self):
        async def ask():
            async with self.openai(kind=openai.AsyncOpenAI) as client:
                return await client.decisions.create(model="jev-latest", input=INPUT, questions=DECISIONS)

        expected = self.openai().decisions.create(model="jev-latest", input=INPUT, questions=DECISIONS)
        expect(asyncio.run(ask()).answers, expected.answers, "the answer")

    def openai_raises_its_errors(self):
        ask = lambda **more: self.openai(more.pop("key", None)).decisions.create(
            **{"model": "jev-latest", "input": INPUT, "questions": DECISIONS, **more}
        )
        image = [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]
        raises(openai.NotFoundError, lambda: ask(model="another"))
        raises(openai.BadRequestError, lambda: ask(input=[{"role": "user", "content": image}]))
        raises(openai.BadRequestError, lambda: ask(questions=[]))
        if self.key:
            raises(openai.AuthenticationError, lambda: ask(key="wrong"))

    def langchain_gets_the_same_of_systemone(self):
        classifier = langchain_typesafe.TypeSafeClassifier(api_key=self.key or "no-key", base_url=self.url, timeout=600)
        kinds = {"noul": "Noul", "choice": "Choice", "score": "Score"}
        make = lambda type, **more: getattr(langchain_typesafe, kinds[type])(**more)
        request = {"state": STATE, "questions": {name: make(**question) for name, question in PLAIN.items()}}
        expected = self.ask(PLAIN)
        for found in (classifier.invoke(request), asyncio.run(classifier.ainvoke(request))):
            expect(found.nouls["refund"].noul, expected["refund"]["noul"], "the probability")
            expect(found.choices["team"].probabilities, expected["team"]["probabilities"], "the set of probabilities")
            expect(found.scores["urgency"].score, expected["urgency"]["score"], "the score")

    def langchain_gets_the_same_of_decisions(self):
        key = self.key or "no-key"
        model = langchain_decisions.OpenAIDecisions(model="jev-latest", api_key=key, base_url=f"{self.url}/v1", max_retries=0)
        state = "I was charged twice."
        team = langchain_decisions.Choice(
            instructions="Which team?", choices={"billing": "payments, refunds", "technical": "bugs"}
        )
        refund = langchain_decisions.Predicate(instructions="Does the customer ask for money back?")
        urgency = langchain_decisions.Score(instructions="How urgent?", levels=["can wait", "today", "now"])
        request = {"input": state, "questions": {"team": team, "refund": refund, "urgency": urgency}}
        criteria = {"billing": "payments, refunds", "technical": "bugs"}
        expected = self.ask({**PLAIN, "team": {**PLAIN["team"], "criteria": criteria}}, state)
        for found in (model.invoke(request), asyncio.run(model.ainvoke(request))):
            expect(found.predicates["refund"].probability, expected["refund"]["noul"], "the probability")
            expect(found.choices["team"].probabilities, expected["team"]["probabilities"], "the set of probabilities")
            expect(found.scores["urgency"].score, expected["urgency"]["score"], "the score")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--draws", type=int, required=True)
    parser.add_argument("--key")
    arguments = parser.parse_args()
    checks = Checks(arguments.url, arguments.draws, arguments.key)
    found = {}
    for name in vars(Checks):
        if name.startswith(("typesafe_", "openai_", "langchain_")):
            try:
                getattr(checks, name)()
                found[name] = None
            except Exception as error:  # noqa: BLE001, any exception of a client is a finding
                line = traceback.extract_tb(error.__traceback__)[-1].lineno
                text = str(error).replace(arguments.url, "URL")
                found[name] = f"{type(error).__name__}: {text} (line {line})"
    print(json.dumps(found, ensure_ascii=False))


main()
