"""The conformance suite of decision models and their Python clients against `lrvd serve`.

    conformance.py --program LRVD [--model DIR …]        # what `cargo xtask jevcompat` calls

Prints a line for each server, and below the requirements that were not met or not tested: then the exit status is 1.
"""

import argparse
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from served import DRAWS, KEY, TINY, serve, train

CLIENTS = Path(__file__).with_name("decision_clients.py")
# Requirements that the suite tests only with a key, and the one that it tests only without.
KEYED = {"auth.bearer", "auth.missing", "auth.invalid"}
OPEN = {"auth.ignored-when-off"}
# Seconds that the suite waits for an answer; an answer that takes longer is one that was not tested.
PATIENCE = "3600"


def suite(address, key, file):
    """Passed and all requirements by level, and the failures."""
    command = [sys.executable, "-m", "jevcompat.cli", "test", address, "--timeout", PATIENCE, "--json", str(file)]
    # The report says what passed; the exit status and the text would repeat it.
    subprocess.run(command + (["--key", key] if key else []), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    report = json.loads(file.read_text())
    # The report of another server is not read.
    file.unlink()
    counts, failed = {"MUST": [0, 0], "SHOULD": [0, 0]}, []
    for one in report["results"]:
        name, is_skipped = f"{one['level']} {one['id']}", one["status"] == "skip"
        if is_skipped and one["id"] in (OPEN if key else KEYED):
            continue
        counts[one["level"]][0] += one["status"] == "pass"
        counts[one["level"]][1] += 1
        if is_skipped:
            failed.append(f"{name}: not tested: {one['reason']}")
        elif one["status"] != "pass":
            reasons = (f"{finding['case']}: {finding['message']}" for finding in one["findings"])
            failed.append(f"{name}: {'; '.join(reasons)}")
    if report["aborted"]:
        failed.append(f"not tested: {report['aborted']}")
    failed += [f"no answer: {request}" for request in report["inconclusive"]]
    failed += [f"{case}: {reason}" for case, reason in report["case_errors"]]
    return counts["MUST"], counts["SHOULD"], failed


def clients(address, key, draws):
    """Passed and all checks of the clients, and the failures."""
    command = [sys.executable, str(CLIENTS), address, "--draws", str(draws)] + (["--key", key] if key else [])
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    assert found, f"`{CLIENTS.name}` has no checks"
    failed = [f"client {name}: {failure}" for name, failure in found.items() if failure is not None]
    return [len(found) - len(failed), len(found)], failed


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask jevcompat")
    parser.add_argument("--program", metavar="LRVD", type=Path, required=True, help="a built `lrvd`")
    parser.add_argument("--model", metavar="DIR", type=Path, action="append", default=[], help="a language model to test beside that of the repository; may be repeated")
    arguments = parser.parse_args()
    line = "{:<24} {:<4} {:>5}  {:>6} {:>7} {:>8}".format
    print(line("model", "key", "draws", "MUST", "SHOULD", "clients"))
    # The same failure of several servers is printed once.
    failures = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for number, model in enumerate([TINY, *arguments.model]):
            trained = Path(folder) / str(number)
            train(arguments.program, model.resolve(), trained)
            for key in (None, KEY):
                for draws in (0, DRAWS):
                    with serve(arguments.program, "--draws", draws, trained, key=key) as address:
                        *levels, failed = suite(address, key, Path(folder) / "report.json")
                        checks, more = clients(address, key, draws)
                    name = [model.name, "on" if key else "off", draws]
                    print(line(*name, *(f"{passed}/{of}" for passed, of in (*levels, checks))), flush=True)
                    for failure in failed + more:
                        failures[failure].append("{} key {} draws {}".format(*name))
    for failure, servers in sorted(failures.items()):
        print(f"\nFAILED {failure}\n  at {', '.join(servers)}")
    return bool(failures)


sys.exit(main())
