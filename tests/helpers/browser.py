"""A headless Chromium, spoken to over a pair of pipes: the DevTools protocol without a package."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager

from patience import HANG_SECONDS

KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "Enter": 13}

# Text against the background behind it; WCAG asks for 4.5.
CONTRAST = """
(() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const channel = (value) => value <= 0.03928 * 255 ? value / 255 / 12.92
    : ((value / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    const colour = parse(getComputedStyle(element).backgroundColor);
    return colour[3] === 0 ? behind(element.parentElement) : colour;
  };
  const all = 'h1, p, a, small, label, output, dt, dd, td, th, text, code, button:enabled, '
    + '.bits span';
  return [...document.querySelectorAll(all)].flatMap((element) => {
    const style = getComputedStyle(element);
    const front = parse(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(front), light(behind(element))].sort((one, other) => other - one);
    const contrast = (a + 0.05) / (b + 0.05);
    return contrast >= 4.5 ? [] : [[element.outerHTML.slice(0, 80), contrast]];
  });
})()
"""


@contextmanager
def browser():
    """Start a browser with one empty page, and end it."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise FileNotFoundError("these tests need a browser: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        theirs_in, to = os.pipe()
        source, theirs_out = os.pipe()
        options = [
            "--headless",
            "--remote-debugging-pipe",
            f"--user-data-dir={home}",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
        ]
        # It reads commands from descriptor 3 and writes answers to 4.
        redirect = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        process = subprocess.Popen(
            ["bash", "-c", redirect, "bash", program, *options, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(to, source)
        finally:
            process.kill()
            process.wait()
            os.close(to)
            os.close(source)


class Browser:
    """One page in one browser."""

    def __init__(self, to, source):
        self._to, self._from = to, source
        self._buffer, self._number, self._session = b"", 0, None
        self.errors = []  # what the page complained about
        targets = self.command("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        attached = self.command("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method, **parameters):
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _read(self):
        deadline = time.monotonic() + HANG_SECONDS
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer.")
            piece = os.read(self._from, 1 << 16)
            if not piece:
                raise EOFError("the browser has ended.")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(event["params"]["exceptionDetails"])
        elif event.get("method") == "Log.entryAdded":
            self.errors.append(event["params"]["entry"])

    def evaluate(self, expression):
        """Return the value of a JavaScript expression."""
        result = self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def leave(self):
        """Leave a page, and wait until it is gone."""
        self.command("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")

    def open(self, address):
        """Open a page, and wait until it is there."""
        self.leave()
        self.command("Page.navigate", url=address)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def wait(self, condition):
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + HANG_SECONDS
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"this does not come true: {condition}")
            time.sleep(0.02)

    def size(self, width, height, dark=False):
        """Set the size of the window, and the theme."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[theme])

    def click(self, selector):
        """Click the middle of an element with the mouse."""
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({selector!r});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.command(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    def move(self, x, y):
        """Move the mouse."""
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key, times=1):
        """Press a key of those in KEYS."""
        text = {"text": "\r"} if key == "Enter" else {}
        code = KEYS[key]
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                self.command(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    code=key,
                    windowsVirtualKeyCode=code,
                    **text,
                )

    def write(self, selector, text):
        """Replace what stands in a field, by the keyboard."""
        self.evaluate(f"document.querySelector({selector!r}).select()")
        self.command("Input.insertText", text=text)

    def text(self, selector):
        """Return what an element shows."""
        return self.evaluate(f"document.querySelector({selector!r}).innerText")

    def screenshot(self, path):
        """Write a picture of the whole page."""
        picture = self.command("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def faint(self):
        """Return the texts that can hardly be read, with their contrast."""
        return self.evaluate(CONTRAST)
