"""The form for typed questions of the page of `lrvd serve`, in a headless Chromium.

    page_test.py --program LRVD [--chromium PROGRAM]        # what `cargo xtask page-test` calls

Fills in and sends the form by the keyboard, as a user does, and compares what is shown with the server's answer.
"""

import argparse
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from served import KEY, TINY, fit_threshold, serve, train

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
STATE = "it was a dull day 😡"
# Paths that the page asks for.
PATHS = {"/", "/v1/adapters", "/v1/systemone"}
# The lines that a user types for the options of a question, and the question as a client asks it; the types in the order of
# the form's list.
QUESTIONS = [
    ("", {"type": "noul", "instructions": "Did it rain?"}),
    (
        "kind: a fine one: or so\n\n  dull\n환불 🙂: neither",
        {
            "type": "choice",
            "instructions": "Which mood?",
            "criteria": {"kind": "a fine one: or so", "dull": None, "환불 🙂": "neither"},
        },
    ),
    ("none\nsome\nmuch", {"type": "score", "instructions": "How much wind?", "criteria": ["none", "some", "much"]}),
]
# Texts of the page, and bars as label, number, width and mark in percent.
SHOWN = """() => {
  const card = document.querySelector('#result .card');
  const bars = (name) => [...card.querySelectorAll(`ul[aria-label="${name}"] li`)].map((item) => {
    const [label, number] = item.querySelectorAll('.named span');
    const mark = item.querySelector('.limit');
    return [label.textContent, number.textContent, parseFloat(item.querySelector('.fill').style.width),
      mark === null ? null : parseFloat(mark.style.left)];
  });
  return { verdict: card.querySelector('.verdict')?.textContent ?? null,
    lines: [...card.querySelectorAll('p')].map((line) => line.textContent),
    uncertainty: bars('Uncertainty'), probabilities: bars('Probabilities') };
}"""
ASK = """([body, authorization]) => fetch('/v1/systemone', { method: 'POST', body: JSON.stringify(body),
  headers: { 'Content-Type': 'application/json', Authorization: authorization } }).then((response) => response.json())"""


def expect(found, expected, what):
    assert found == expected, f"{what} is {found!r}, expected {expected!r}"


def percent(share):
    return f"{100 * share:.1f} %"


def set_thresholds(trained):
    """A choice keeps its threshold, a score gets one that no answer reaches, and a yes-or-no question has none."""
    file = trained / "adapter/lrvd_adapter.json"
    description = json.loads(file.read_text())
    types = description["calibration"]
    threshold = types["choice"]["0"]["threshold"]
    types["score"]["0"]["threshold"] = {**threshold, "least": 1.0}
    types["yes-no"]["0"]["threshold"] = None
    file.write_text(json.dumps(description))


def fill_in(page, number, lines, question, key):
    """Fills in and sends the form; every field is reached by the keyboard."""
    keyboard = page.keyboard

    def focus(name):
        expect(page.evaluate("document.activeElement.id"), name, "the element with the focus")

    def tab_to(name):
        keyboard.press("Tab")
        focus(name)

    focus("text")
    keyboard.insert_text(STATE)
    if key:
        page.locator("#locked").wait_for()
        tab_to("key")
        keyboard.insert_text(key)
        # The form learns what the model is, and what is left to fill in.
        keyboard.press("Enter")
        page.wait_for_function("document.activeElement.id === 'asks'")
    else:
        page.locator("#typed").wait_for()
        tab_to("asks")
    keyboard.insert_text(question["instructions"])
    tab_to("type")
    for _ in range(number):
        keyboard.press("ArrowDown")
    if lines:
        tab_to("options")
        keyboard.insert_text(lines)
    if key:
        tab_to("key")
    tab_to("draws")
    tab_to("ask")
    keyboard.press("Enter")
    page.locator("#result .card").wait_for()


def compare(shown, answer):
    """Compares what is shown with the answer of the server."""
    kind, threshold = answer["type"], answer["x_threshold"]
    # Null where there is no threshold.
    below = answer["x_abstained"] is True
    if kind == "noul":
        p = answer["noul"]
        # By option or level in words, in the order that is shown.
        options = [("true", p), ("false", 1 - p)]
        verdict = f"{'true' if p >= 0.5 else 'false'}: {percent(max(p, 1 - p))}"
        confidence = answer["x_confidence"]
    else:
        legend = answer.get("legend", {})
        options = [(legend.get(name, name), p) for name, p in answer["probabilities"].items()]
        confidence = answer["confidence"]
        if kind == "choice":
            options.sort(key=lambda option: -option[1])
            verdict = answer["choice"]
        else:
            verdict = f"Level {answer['score']:.2f} of 0 to {len(options) - 1}"
    entropy = answer["x_entropy"]
    expect(shown["verdict"], verdict, "the verdict")
    uncertainty = [
        ("Confidence", percent(confidence), confidence, threshold),
        ("Entropy", f"{entropy:.4f} nats", entropy / math.log(len(options)), None),
    ]
    probabilities = [(name, percent(p), p, None) for name, p in options]
    for name, expected in (("uncertainty", uncertainty), ("probabilities", probabilities)):
        expect([bar[:2] for bar in shown[name]], [list(bar[:2]) for bar in expected], f"the list of {name}")
        for (label, _, width, mark), (_, _, share, limit) in zip(shown[name], expected):
            assert abs(width - 100 * share) < 0.01, f"the bar of {label} is {width} % wide, expected {100 * share} %"
            expect(mark is None, limit is None, f"no mark of {label}")
            assert mark is None or abs(mark - 100 * limit) < 0.01, f"the mark of {label} is at {mark} %, expected {100 * limit} %"
    lines = {
        "Below the threshold: too unsure to act on.": below,
        "No temperature was fitted: these probabilities are not calibrated.": False,
    }
    if threshold is not None:
        lines[f"The threshold is a confidence of {percent(threshold)}, the mark on its bar."] = True
    for line, is_shown in lines.items():
        expect(line in shown["lines"], is_shown, f"`{line}` on the page")
    # As `set_thresholds` has set them.
    expected = {"noul": (True, False), "choice": (False, False), "score": (False, True)}[kind]
    expect((threshold is None, below), expected, "no threshold, and an answer that is withheld")


def check_question(page, address, number, lines, question, key):
    page.goto(f"{address}/")
    fill_in(page, number, lines, question, key)
    shown = page.evaluate(SHOWN)
    body = {"model": "jev-latest", "state": STATE, "questions": {"q": question}, "x_draws": 0}
    answer = page.evaluate(ASK, [body, f"Bearer {key}" if key else ""])
    compare(shown, answer["answers"]["q"])


def check_adapters(page, address):
    """Of two adapters the one answers that is chosen."""
    page.goto(f"{address}/")
    page.locator("#several").wait_for()
    page.keyboard.insert_text(STATE)
    expect(page.locator("#adapter option").evaluate_all("all => all.map((option) => option.value)"), ["one", "two"], "the list")
    page.select_option("#adapter", "two")
    page.focus("#asks")
    page.keyboard.insert_text("Did it rain?")
    with page.expect_request("**/v1/systemone") as request:
        page.evaluate("document.getElementById('form').requestSubmit()")
    page.locator("#result .card .verdict").wait_for()
    expect(request.value.post_data_json["model"], "two", "the model of the request")


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask page-test")
    parser.add_argument("--program", metavar="LRVD", type=Path, required=True, help="a built `lrvd`")
    parser.add_argument("--chromium", metavar="PROGRAM", help=f"a Chromium or Chrome [default: the first of {', '.join(NAMES)} on the path]")
    arguments = parser.parse_args()
    chromium = arguments.chromium or next(filter(None, map(shutil.which, NAMES)), None)
    if not chromium:
        parser.error(f"no Chromium on the path ({', '.join(NAMES)}): install one (Debian: chromium) or name it with --chromium")
    lrvd, faults = arguments.program, []

    def check_request(request):
        path = "/" + request.url.removeprefix("http://127.0.0.1:").partition("/")[2]
        if not request.url.startswith("data:") and path not in PATHS:
            faults.append(f"a request for `{request.url}`")

    def check_message(message):
        # The browser reports what the page's policy blocks as an error of the console.
        if message.type == "error" and "Content Security Policy" in message.text:
            faults.append(message.text)

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        # The page is ours and on this machine: a container without user namespaces needs no sandbox.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("request", check_request)
        page.on("console", check_message)
        page.on("pageerror", lambda error: faults.append(str(error)))
        trained = Path(folder) / "run"
        train(lrvd, TINY, trained)
        fit_threshold(lrvd, trained)
        set_thresholds(trained)
        for key in (None, KEY):
            # The thresholds are not those that were saved.
            with serve(lrvd, "--draws", 0, "--allow-changed", trained, key=key) as address:
                for number, (lines, question) in enumerate(QUESTIONS):
                    check_question(page, address, number, lines, question, key)
                    print(f"{question['type']:<6} {'with' if key else 'without'} a key: the page shows the server's answer", flush=True)
        adapters = [f"--adapter={name}={trained}" for name in ("one", "two")]
        with serve(lrvd, "--base", TINY, "--allow-changed", *adapters) as address:
            check_adapters(page, address)
        print("the second of two adapters answers once it is chosen")
        browser.close()
    assert not faults, "; ".join(faults)
    print(f"requests went to {', '.join(sorted(PATHS))} only, and there was no error")


sys.exit(main())
