"""Take the pictures of the live page in the documentation.

    python tools/live_page.py docs/images

writes live-page.png, on a wide screen, and live-page-phone.png, on a phone in dark colors: the page
of `fedldp demo --fleet --page`. It needs Chromium.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from browser import browser

COMMAND = (sys.executable, "-m", "fedldp", "demo", "--fleet", "--page")
SIZES = {"live-page.png": (1200, False), "live-page-phone.png": (360, True)}


def main(folder: Path) -> None:
    """Take both pictures."""
    demo = subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True)  # noqa: S603 (our own)
    try:
        said = ""
        for line in demo.stderr or ():
            said += line
            if "stays until Ctrl-C" in line:
                break
        [address] = re.findall(r"live page is (http\S+)", said)
        with browser() as page:
            for name, (width, dark) in SIZES.items():
                page.size(width, 400, dark=dark)
                page.open(address)
                page.wait("!document.querySelector('main').hidden")
                height = page.evaluate("document.documentElement.scrollHeight")
                page.size(width, height, dark=dark)
                page.screenshot(folder / name)
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
