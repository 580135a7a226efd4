"""Requests to a classifier over HTTP, timed: the sides of the group `server` of `cargo xtask bench`.

    server_bench.py --side lrvd --clients 8 --program LRVD --load LOAD --folder DIR [--inputs DIR]

`lrvd` is `lrvd serve` with its usual settings. `fastapi` is FastAPI with uvicorn in one process, which answers every request by
itself in ONNX Runtime, on the file of `lrvd export --to onnx`; `fastapi-batched` answers the requests that wait, 8 at most, in one
run of the model. All have the same route, body and number of threads. The client is the program `load` of lrvd-perf, on the same
cores, with as many connections that stay open as `--clients`: each sends its next request, one text of 3 to 33 words, when it
has the answer to the last one. The answers must be those of `lrvd predict` to 1e-5, with `--int8` to .02. Prints one line of JSON: `seconds` for a request in
each step, median and 95th percentile of its latency in ms in the last step, and `peak_rss_bytes` of the server.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from exported import LABELS, Exported, arguments, peak, versions

# Largest batch of `lrvd serve`, unless it is told another.
BATCH = 8
PACKAGES = ["fastapi", "uvicorn", "onnxruntime", "transformers"]
# Seconds of a step, about.
STEP = 3.0


def application(answer, is_batched):
    """The FastAPI application whose `answer` maps texts to probabilities."""
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Asked(BaseModel):
        text: str

    def shown(probabilities):
        return {"answers": [{"probabilities": dict(zip(LABELS, map(float, probabilities)))}]}

    if not is_batched:
        app = FastAPI()

        @app.post("/v1/classify")
        def classify(asked: Asked):
            return shown(answer([asked.text], 1)[0])

        return app

    waiting = asyncio.Queue()
    model = ThreadPoolExecutor(1)

    async def work():
        loop = asyncio.get_running_loop()
        while True:
            jobs = [await waiting.get()]
            while len(jobs) < BATCH and not waiting.empty():
                jobs.append(waiting.get_nowait())
            answers = await loop.run_in_executor(model, answer, [text for text, _ in jobs], BATCH)
            for (_, reply), probabilities in zip(jobs, answers):
                reply.set_result(probabilities)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        task = asyncio.create_task(work())
        yield
        task.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/classify")
    async def classify(asked: Asked):
        reply = asyncio.get_running_loop().create_future()
        waiting.put_nowait((asked.text, reply))
        return shown(await reply)

    return app


def serve_fastapi(exported, options):
    """Serves at a port until the process ends."""
    import uvicorn

    app = application(exported.onnx_answers(options.threads), options.side == "fastapi-batched")
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def server(exported, options):
    """Process and address of a server that answers."""
    environment = {**os.environ, "RAYON_NUM_THREADS": str(options.threads)}
    port = free_port()
    if options.side == "lrvd":
        words = [exported.lrvd, "serve", "--quiet", exported.run, "--draws", 0, "--address", f"127.0.0.1:{port}", *["--int8"] * options.int8]
    else:
        words = [sys.executable, *sys.argv, "--port", port]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen([str(word) for word in words], env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                assert process.poll() is None, "the server has ended"
                with contextlib.suppress(OSError):
                    ask(url, exported.texts[0])
                    break
                time.sleep(0.1)
            yield process, url
        finally:
            process.kill()


def ask(url, text):
    request = urllib.request.Request(f"{url}/v1/classify", json.dumps({"text": text}).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        found = json.load(response)["answers"][0]["probabilities"]
    return [found[label] for label in LABELS]


def load(url, requests, options):
    """What became of so many requests."""
    words = [options.load, "--url", url, "--requests", requests, "--clients", options.clients]
    found = json.loads(subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, check=True).stdout)
    assert found["by_status"] == {"200": requests}, found
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=["lrvd", "fastapi", "fastapi-batched"], required=True)
    parser.add_argument("--load", metavar="LOAD", help="a built `load` of lrvd-perf")
    parser.add_argument("--clients", type=int, default=1, help="connections")
    parser.add_argument("--port", type=int, help="serve by FastAPI, and nothing else")
    arguments(parser)
    options = parser.parse_args()
    exported = Exported(options)
    if options.port:
        serve_fastapi(exported, options)
        return
    with server(exported, options) as (process, url):
        exported.check([ask(url, text) for text in exported.cycled(16)])
        # As many requests as take a few seconds.
        pace = load(url, 20 * options.clients, options)["answered_per_second"]
        requests = max(options.clients, round(STEP * pace))
        steps = [load(url, requests, options) for _ in range(options.steps)]
        most = peak(process)
    print(json.dumps({
        "config": options.config, "side": options.side, "clients": options.clients, "requests": requests,
        "texts_per_step": 1, "seconds": [step["seconds"] / requests for step in steps],
        "p50_ms": steps[-1]["p50_ms"], "p95_ms": steps[-1]["p95_ms"], "peak_rss_bytes": most, "versions": versions(PACKAGES),
    }))


if __name__ == "__main__":
    main()
