#!/usr/bin/env python3
"""Opens the page of `ingot serve` and a report.html in a headless Chromium, at the width of a desk and of a phone, and
uses them: runs are chosen and compared, curves zoomed and read, lines appended, panels opened. Checks what is shown, that
hostile names and samples stay text, that nothing is loaded from elsewhere, and that no script fails.

Usage: tools/check_serve.py [--program build/release/ingot] [--chromium chromium] [--screenshots FOLDER]
Exits with 0 and a line that says so if there is no Chromium."""
import argparse
import base64
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOSTILE = "<img src=x onerror='window.pwned=1'>"
LONG = 20_000  # lines of the long run


class Browser:
    """Speaks the DevTools protocol over the two pipes of --remote-debugging-pipe, which needs no package."""

    def __init__(self, program, folder):
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()

        def connect():  # the protocol's descriptors are 3 and 4
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3), os.dup2(b, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                 "--no-first-run", "--disable-extensions", "--hide-scrollbars", f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen([program, *flags], preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(to_write)
        self.buffer, self.next_id, self.events, self.session = b"", 1, [], None

    def read(self):
        while b"\0" not in self.buffer:
            data = os.read(self.read_end, 1 << 20)
            if not data:
                sys.exit("check_serve: Chromium has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=True, **params):
        message = {"id": self.next_id, "method": method, "params": params}
        if session and self.session:
            message["sessionId"] = self.session
        self.next_id += 1
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == message["id"]:
                if "error" in answer:
                    sys.exit(f"check_serve: {method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def open(self, width, height, is_mobile, scheme):
        target = self.call("Target.createTarget", session=False, url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", session=False, targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_mobile)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            sys.exit(f"check_serve: {expression}: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    def wait(self, expression, what, limit_s=15):
        end = time.monotonic() + limit_s
        while not self.value(expression):
            if time.monotonic() > end:
                self.shot("failed")
                sys.exit(f"check_serve: FAILED: {what} (waited {limit_s} s for {expression})")
            time.sleep(0.05)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector):
        x, y = self.value(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: "center"}});
          const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()""")
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def box(self, selector):
        return self.value(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: "center"}});
          const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }})()""")

    def shot(self, name):
        if self.shots:
            time.sleep(0.4)  # the last frame is drawn by then
            data = self.call("Page.captureScreenshot", format="png")["data"]
            (self.shots / f"{name}.png").write_bytes(base64.b64decode(data))

    def problems(self, allowed):
        """What scripts and requests have done wrong since the page was opened."""
        for event in self.events:
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                yield "exception: " + json.dumps(params["exceptionDetails"])[:400]
            if event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                yield "error: " + params["entry"]["text"] + " " + params["entry"].get("url", "")
            if event["method"] == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith((allowed, "data:")):
                    yield "request: " + url


def make_run(folder, steps, lr, seed):
    folder.mkdir(parents=True)
    (folder / "samples").mkdir()
    (folder / "run.json").write_text(json.dumps({"status": "completed", "steps": steps, "tokens": steps * 4096, "exit_code": 0,
                                                 "end": "2026-11-20T10:00:00Z", "program": {"version": "0.1.0", "arguments": [HOSTILE]}}))
    (folder / "config.toml").write_text(f'preset = "tiny"\n[train]\nsteps = {steps}  # optimizer steps\n[optimizer]\nlr = {lr}  # rate\n'
                                        f'[data]\ntrain = "{HOSTILE}"\n')
    with open(folder / "metrics.jsonl", "w", encoding="utf-8") as out:
        for step in range(1, steps + 1):
            out.write(line(step, seed) + "\n")
            if step % max(steps // 12, 1) == 0:
                out.write(json.dumps({"step": step, "val_loss": 2.2 + 4 * math.exp(-step / steps * 4), "val_bits_per_byte": 1.5}) + "\n")
        out.write(json.dumps({"step": steps // 2, "event": "skipped", "reason": "spike " + HOSTILE}) + "\n")
    with open(folder / "params.jsonl", "w", encoding="utf-8") as out:
        for step in range(1, 40):
            for name in ("embedding.weight", "blocks.0.mlp.down.weight", HOSTILE):
                out.write(json.dumps({"step": step * 10, "param": name, "weight_norm": 3 + step / 40, "grad_norm": 1 / step,
                                      "update_ratio": 0.01 / step, "update_projection": 0.001}) + "\n")
    for step in (10, 20):
        (folder / "samples" / f"step-{step:09d}.txt").write_text(f"--- 1\nOnce upon a time {HOSTILE} {step}\n")


def line(step, seed):
    noise = math.sin(step * 12.9898 + seed) * 0.15
    return json.dumps({"step": step, "tokens": step * 4096, "loss": 2 + 4 * math.exp(-step / 400) + noise, "top1": 0.3, "lr": 1e-3,
                       "grad_norm": 1 + abs(noise), "step_ms": 50 + noise, "tokens_per_s": 80000 + 9000 * noise, "mfu": 0.4,
                       "rss_bytes": 310_000_000 + step, "ms_forward": 20, "ms_backward": 25, "ms_optimizer": 3})


def ink(selector):
    """JavaScript: how many pixels of the canvas have the colour of a curve."""
    return f"""(() => {{ const c = document.querySelector({json.dumps(selector)}); if (!c) return 0; const d = c.getContext("2d").getImageData(0, 0, c.width,
      c.height).data; let n = 0; for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 60 && Math.max(d[i], d[i + 1], d[i + 2]) -
      Math.min(d[i], d[i + 1], d[i + 2]) > 60) ++n; return n; }})()"""


LOSS = "[data-chart=loss] canvas"
RANGE = "ingotPage.charts.get('loss').range"


def check(is_true, what):
    if not is_true:
        sys.exit(f"check_serve: FAILED: {what}")


def use_page(browser, url, runs, name, is_phone):
    browser.call("Page.navigate", url=url)
    browser.wait("window.ingotPage && ingotPage.store.runs.length === 4", "the list has four runs")
    if is_phone:
        browser.click("#menu")
    browser.click("[data-run='1'] .run-name")
    browser.wait(ink(LOSS) + " > 300", "the loss of the chosen run is drawn")
    check(browser.value("document.querySelector('#summary h2').textContent").startswith("alpha"), "the chosen run is named")
    browser.shot(name + "-one")
    # A click zooms, another shows everything again.
    browser.click("[data-chart=loss] [data-act=in]")
    browser.wait(RANGE + " !== null", "the button zooms in")
    low, high = browser.value(RANGE)
    check(0 < high - low < 301, f"zooming in halves the range, got {low} .. {high}")
    browser.click("[data-chart=loss] [data-act=reset]")
    browser.wait(RANGE + " === null", "reset shows everything")
    x, y, width, height = browser.box(LOSS)
    if not is_phone:
        # Dragging selects a range, in all charts.
        browser.mouse("mouseMoved", x + width * 0.5, y + height * 0.5)
        browser.mouse("mousePressed", x + width * 0.5, y + height * 0.5, button="left", clickCount=1)
        for f in (0.6, 0.7, 0.75):
            browser.mouse("mouseMoved", x + width * f, y + height * 0.5, button="left", buttons=1)
        browser.mouse("mouseReleased", x + width * 0.75, y + height * 0.5, button="left", clickCount=1)
        browser.wait(RANGE + " !== null && ingotPage.charts.get('lr').range !== null", "dragging zooms all charts")
        low, high = browser.value(RANGE)
        check(250 < low < 350 and 400 < high < 500, f"dragging selects what was dragged over, got {low} .. {high}")
        browser.value("ingotPage.charts.get('loss').panBy(0.5)")
        check(browser.value(RANGE)[0] > low, "panning moves the range")
        for _ in range(2):
            browser.mouse("mousePressed", x + width * 0.5, y + 60, button="left", clickCount=2)
            browser.mouse("mouseReleased", x + width * 0.5, y + 60, button="left", clickCount=2)
        browser.wait(RANGE + " === null", "a double click shows everything")
    # Hovering reads values.
    browser.mouse("mouseMoved", x + width * 0.6, y + height * 0.4)
    browser.wait("!document.querySelector('[data-chart=loss] .ic-tip').hidden", "hovering shows values")
    tip = browser.value("document.querySelector('[data-chart=loss] .ic-tip').textContent")
    check(re.search(r"step \d+.*train[\d.]+", tip), f"the read-out has step and loss, got {tip!r}")
    browser.shot(name + "-hover")
    numbers = "[[150000, 2], [4500, 2], [0.00025, 3], [2.5, 5], [123456789, 4], [0, 3], [-1500, 4]]"
    texts = browser.value(numbers + ".map(([value, digits]) => IngotChart.formatNumber(value, digits))")
    check(texts == ["150k", "4500", "2.5e-4", "2.5", "123.5M", "0", "-1500"], f"numbers are short, got {texts}")
    # Other axes.
    browser.value("(() => { const s = document.querySelector('#axis'); s.value = 'tokens'; s.dispatchEvent(new Event('change')); })()")
    browser.wait("Math.abs(ingotPage.charts.get('loss').extent()[1] - 600 * 4096) < 1", "the x axis shows tokens")
    browser.value("(() => { const s = document.querySelector('#axis'); s.value = 'time'; s.dispatchEvent(new Event('change')); })()")
    browser.wait("Math.abs(ingotPage.charts.get('loss').extent()[1] - 30) < 1", "the x axis shows time")
    browser.value("(() => { const s = document.querySelector('#axis'); s.value = 'step'; s.dispatchEvent(new Event('change')); })()")
    browser.click("[data-chart=loss] [data-act=log]")
    check(browser.value("ingotPage.charts.get('loss').options.logY"), "the y axis is logarithmic")
    browser.click("[data-chart=loss] [data-act=log]")
    # Lines that are appended arrive without a reload.
    with open(runs / "alpha" / "metrics.jsonl", "a", encoding="utf-8") as out:
        out.write(line(601, 1) + "\n" + line(602, 1)[:40])
        out.flush()
        browser.wait("ingotPage.charts.get('loss').extent()[1] === 601", "an appended line arrives, a torn one does not", 5)
        out.write(line(602, 1)[40:] + "\n")
    browser.wait("ingotPage.charts.get('loss').extent()[1] === 602", "the rest of a torn line arrives", 5)
    # A resumed run cuts the file back.
    lines = (runs / "alpha" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (runs / "alpha" / "new").write_text("".join(one for one in lines if json.loads(one)["step"] <= 600))
    os.replace(runs / "alpha" / "new", runs / "alpha" / "metrics.jsonl")
    browser.wait("ingotPage.charts.get('loss').extent()[1] === 600", "a file that was cut back is read anew", 5)
    # Runs beside each other.
    if is_phone:
        browser.click("#menu")
    browser.click("[data-run='2'] input")
    browser.click("[data-run='3'] input")
    browser.wait("ingotPage.chosen.length === 3 && ingotPage.charts.get('loss').series.length > 5", "three runs share a plot")
    browser.wait(f"ingotPage.charts.get('loss').extent()[1] === {LONG}", "the long run is drawn to its end", 30)
    if is_phone:
        browser.click("#menu")
    browser.shot(name + "-compared")
    started = time.monotonic()
    browser.value("(() => { for (const c of ingotPage.charts.values()) c.paint(); })()")
    print(f"check_serve: {name}: all charts of three runs, one of {LONG} lines, are painted in {1e3 * (time.monotonic() - started):.0f} ms")
    # A closer look at the long run has every step.
    browser.value(f"ingotPage.charts.get('loss').showRange({LONG // 2}, {LONG // 2 + 400})")
    browser.wait("(ingotPage.details.get(3) || {loss: {x: []}}).loss.x.length >= 400", "a closer look has every step")
    browser.shot(name + "-closer")
    browser.value("ingotPage.charts.get('loss').setRange(null)")
    for tab, words in (("samples", "Once upon a time " + HOSTILE), ("params", HOSTILE), ("config", "optimizer.lr"), ("events", "spike " + HOSTILE)):
        browser.click(f"[data-tab={tab}]")
        browser.wait(f"document.querySelector('[data-panel={tab}]').textContent.includes({json.dumps(words)})", f"the panel {tab} has {words}")
        browser.shot(f"{name}-{tab}")
        check(browser.value("document.documentElement.scrollWidth <= innerWidth"), f"{tab} is not wider than the screen")
    # The table sorts, and no two runs share a colour.
    browser.click("[data-tab=table]")
    names = "[...document.querySelectorAll('[data-panel=table] tbody tr')].map((r) => r.cells[0].textContent)"
    browser.click("[data-sort=name]")
    check(browser.value(names)[1:] == ["alpha", "beta", "gamma-long"], f"the table is sorted by name, got {browser.value(names)}")
    browser.click("[data-sort=name]")
    check(browser.value(names)[0] == "gamma-long", "a second click turns the order round")
    browser.click("[data-sort=best_val_loss]")
    check(browser.value(names)[0] == "beta", "the table is sorted by validation loss, runs without one last")
    browser.shot(name + "-table")
    check(browser.value("document.documentElement.scrollWidth <= innerWidth"), "the table is not wider than the screen")
    check(browser.value("new Set([...Array(60).keys()].map(ingotPage.color)).size === 60"), "60 runs have 60 colours")
    check(browser.value("document.querySelector(\"[data-run='2'] .run-loss\").textContent") == "val 1.2500", "the list names its number")
    loss = "ingotPage.charts.get('loss').series.filter((s) => s.name)"
    browser.click("[data-tab=charts]")
    check(browser.value(f"{loss}.length === 6 && new Set({loss}.map((s) => s.color)).size === 3"), "a validation curve has its run's colour")
    check(browser.value("[...document.querySelectorAll('[data-differs=true]')].length >= 2"), "differing settings are marked")
    browser.click("[data-tab=charts]")
    check(browser.value("document.documentElement.scrollWidth <= innerWidth"), "the charts are not wider than the screen")
    check(browser.value("window.pwned === undefined"), "text from files stays text")
    found = list(browser.problems(url))
    check(not found, "\n".join(found))


def use_report(browser, report, name):
    browser.call("Page.navigate", url=report.as_uri())
    browser.wait("document.querySelectorAll('figure.has-chart canvas').length > 3", "the report's charts are interactive")
    browser.wait(ink("figure.has-chart canvas") + " > 200", "the report's loss is drawn")
    check(browser.value("getComputedStyle(document.querySelector('figure .wide')).display === 'none'"), "the picture is for paper only")
    browser.shot(name + "-report")
    browser.click("figure.has-chart [data-act=in]")
    browser.wait("!document.querySelector('figure.has-chart [data-act=reset]').hidden", "the report zooms")
    check(browser.value("document.documentElement.scrollWidth <= innerWidth"), "the report is not wider than the screen")
    browser.call("Emulation.setEmulatedMedia", media="print")
    check(browser.value("getComputedStyle(document.querySelector('figure .wide')).display !== 'none'"), "paper has the picture")
    browser.call("Emulation.setEmulatedMedia", media="")
    found = list(browser.problems("file://"))
    check(not found, "\n".join(found))


def use_sweep(browser, folder, name):
    """The reports of a sweep and of a comparison fit the screen, with their commands wrapped."""
    for file in ("sweep/report.html", "compare.html"):
        browser.call("Page.navigate", url=(folder / file).as_uri())
        browser.wait("document.readyState === 'complete'", f"{file} is loaded")
        browser.shot(f"{name}-{file.replace('/', '-').removesuffix('.html')}")
        check(browser.value("document.documentElement.scrollWidth <= innerWidth"), f"{file} is not wider than the screen")
        check(browser.value("[...document.querySelectorAll('pre')].every((e) => e.scrollWidth <= e.clientWidth)"), f"commands in {file} are wrapped")
    found = list(browser.problems("file://"))
    check(not found, "\n".join(found))


def make_sweep(program, folder):
    words = ["--set", "train.steps=20", "--set", "train.threads=1", "--set", "sample.count=0", "--quiet"]
    sweep = ["sweep", "tiny-llama", "--data", str(folder / "text.txt"), "--out", str(folder / "sweep"), "--vary", "optimizer.lr=1e-4,1e-3,1e-2",
             "--vary", "optimizer.weight_decay=0.01,0.1", "--seeds", "1"]
    subprocess.run([program, *sweep, *words], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([program, "compare", str(folder / "sweep"), "--html", str(folder / "compare.html")], check=True, stdout=subprocess.DEVNULL)


def make_report(program, folder):
    (folder / "text.txt").write_text("the cat sat on the mat. a dog ran. " * 2000)
    subprocess.run([program, "train", "tiny-llama", "--data", str(folder / "text.txt"), "--out", str(folder / "trained"), "--set",
                    "train.steps=60", "--set", "train.threads=1", "--set", "train.stats_every=10", "--set", "eval.every=10", "--set", "sample.count=1"],
                   check=True, stdout=subprocess.DEVNULL)
    return folder / "trained" / "report.html"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/release/ingot"))
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome"))
    parser.add_argument("--screenshots", type=pathlib.Path)
    given = parser.parse_args()
    if not given.chromium:
        print("check_serve: NOT CHECKED: there is no Chromium here (apt-get install chromium)")
        return 0
    if given.screenshots:
        given.screenshots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = pathlib.Path(scratch)
        runs = folder / "runs"
        make_run(runs / HOSTILE.replace("/", ""), 50, 0.1, 0)
        make_run(runs / "alpha", 600, 0.001, 1)
        make_run(runs / "beta", 500, 0.002, 2)
        record = json.loads((runs / "beta" / "run.json").read_text())
        (runs / "beta" / "run.json").write_text(json.dumps(record | {"best": {"step": 500, "val_loss": 1.25}}))
        make_run(runs / "gamma-long", LONG, 0.003, 3)
        report = make_report(given.program, folder)
        make_sweep(given.program, folder)
        server = subprocess.Popen([given.program, "serve", "--port", "0", str(runs)], stdout=subprocess.PIPE, text=True)
        browser = Browser(given.chromium, folder / "profile")
        browser.shots = given.screenshots
        try:
            url = re.search(r"http://\S+", server.stdout.readline())[0]
            for name, width, height, is_phone, scheme in (("desk", 1360, 860, False, "light"), ("phone", 390, 844, True, "dark")):
                browser.open(width, height, is_phone, scheme)
                use_page(browser, url, runs, name, is_phone)
                browser.events.clear()
                use_report(browser, report, name)
                use_sweep(browser, folder, name)
                print(f"check_serve: {name}: page and report work")
            server.send_signal(2)
            check(server.wait(5) == 0, "SIGINT ends the server with 0")
        finally:
            server.kill()
            browser.process.kill()
            browser.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
