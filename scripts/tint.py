#!/usr/bin/env python3
"""Compiles WGSL files with Tint, Chromium's WGSL compiler: the other implementation beside naga, and stricter in places
(barriers in non-uniform control flow, for one).

usage: tint.py FILE.wgsl...

A headless Chromium loads a page from a server in this process, compiles every file through WebGPU and posts the
compiler's messages back. They are printed as FILE:LINE:COLUMN. Set CHROMIUM to use another browser binary.

exit: 0 no errors, 1 a shader has errors, 2 no Chromium, no WebGPU adapter or no answer."""

import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

DEADLINE_S = 300

# Software adapter, so that the verdict is the same on every machine; nothing that waits for a network or a display.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-features=Vulkan",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
]

# The extensions that a file enables, and the device features they need. A file whose features the adapter lacks is
# skipped: Tint would only report that.
PAGE = """<!doctype html><script type="module">
const FEATURES = {f16: 'shader-f16', subgroups: 'subgroups'};

async function compile() {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw 'Chromium offers no WebGPU adapter';
  const requiredFeatures = Object.values(FEATURES).filter(f => adapter.features.has(f));
  const device = await adapter.requestDevice({requiredFeatures});
  const results = [];
  for (const {name, code} of await (await fetch('/shaders')).json()) {
    const enabled = [...code.matchAll(/^\\s*enable\\s+([^;]+);/gm)].flatMap(m => m[1].split(',').map(e => e.trim()));
    const lacking = enabled.filter(e => FEATURES[e] && !requiredFeatures.includes(FEATURES[e]));
    if (lacking.length) { results.push({name, lacking, messages: []}); continue; }
    device.pushErrorScope('validation');
    const info = await device.createShaderModule({code}).getCompilationInfo();
    const error = await device.popErrorScope();
    const messages = info.messages.map(m => ({type: m.type, line: m.lineNum, column: m.linePos, text: m.message}));
    if (error && !messages.some(m => m.type === 'error'))
      messages.push({type: 'error', line: 0, column: 0, text: error.message});
    results.push({name, lacking, messages});
  }
  return {results};
}

const answer = await compile().catch(e => ({fatal: String(e)}));
await fetch('/answer', {method: 'POST', body: JSON.stringify(answer)});
</script>"""


def serve(shaders):
    """Starts the page's server; returns it, and the queue-like pair (event, answers)."""
    done, answers = threading.Event(), []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            kind, body = ("application/json", shaders) if self.path == "/shaders" else ("text/html", PAGE.encode())
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, done, answers


def ask_chromium(browser, shaders):
    """The page's answer: {"results": [...]} or {"fatal": why}."""
    server, done, answers = serve(shaders)
    with tempfile.TemporaryDirectory(prefix="tint-", ignore_cleanup_errors=True) as profile:
        log = pathlib.Path(profile, "log")
        with log.open("wb") as output:
            # A group of its own: Chromium's helper processes end with it.
            process = subprocess.Popen(
                [browser, *FLAGS, f"--user-data-dir={profile}/profile", f"http://127.0.0.1:{server.server_port}/"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )
            waited = 0
            while not done.wait(1) and waited < DEADLINE_S and process.poll() is None:
                waited += 1
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        server.shutdown()
        if answers:
            return answers[0]
        exited = f"Chromium exited with {process.returncode}"
        why = f"no answer within {DEADLINE_S} s" if waited >= DEADLINE_S else exited
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        return {"fatal": f"{why}\n{tail}"}


def main(files):
    if not files or files[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if files else 2
    names = [os.environ.get("CHROMIUM", "chromium"), "chromium-browser", "google-chrome", "google-chrome-stable"]
    browser = next((path for path in map(shutil.which, names) if path), None)
    if not browser:
        print("tint.py: found no Chromium; install it or set CHROMIUM", file=sys.stderr)
        return 2
    try:
        shaders = [{"name": name, "code": pathlib.Path(name).read_text(encoding="utf-8")} for name in files]
    except OSError as error:
        print(f"tint.py: {error}", file=sys.stderr)
        return 2
    answer = ask_chromium(browser, json.dumps(shaders).encode())
    if "fatal" in answer:
        print(f"tint.py: {answer['fatal']}", file=sys.stderr)
        return 2
    errors = skipped = 0
    for result in answer["results"]:
        if result["lacking"]:
            skipped += 1
            print(f"{result['name']}: skipped: the adapter has no {', '.join(result['lacking'])}")
        for message in result["messages"]:
            errors += message["type"] == "error"
            print(f"{result['name']}:{message['line']}:{message['column']}: {message['type']}: {message['text']}")
    if len(answer["results"]) != len(files):
        print("tint.py: Chromium did not answer for every file", file=sys.stderr)
        return 2
    print(f"Tint: {len(files) - skipped} shaders compiled, {skipped} skipped, {errors} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
