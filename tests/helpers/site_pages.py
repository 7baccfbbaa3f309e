"""What a browser sees of the pages of a built site, and what is wrong with it."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

SCREEN_HEIGHT = 900
WIDTHS = {"desktop": 1280, "phone": 390}

# Loads pictures that would wait until somebody scrolls to them.
LOAD_PICTURES = """
(() => {
  const pictures = [...document.images];
  for (const picture of pictures) picture.loading = 'eager';
  return pictures.every((picture) => picture.complete);
})()
"""

# The theme follows the system by a script, and colors change slowly.
THEME = """
(() => {
  const still = new CSSStyleSheet();
  still.replaceSync('* { transition: none !important; animation: none !important; }');
  document.adoptedStyleSheets = [still];
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const scheme = document.body.dataset.mdColorScheme;
  return scheme === undefined || scheme === (dark ? 'slate' : 'default');
})()
"""

# A page is as long as it is before anything in it is unfolded. A table or a listing may scroll
# within itself; the page as a whole may not.
LAYOUT = """
({
  height: document.documentElement.scrollHeight,
  unfolded: [...document.querySelectorAll('details')].map((details) => details.open = true),
  width: document.documentElement.scrollWidth,
  missing: [...document.images].filter((picture) => picture.naturalWidth === 0)
    .map((picture) => picture.getAttribute('src')),
  links: [...document.querySelectorAll('a[href]')].map((link) => link.href),
  anchors: [...document.querySelectorAll('[id]')].map((element) => element.id),
})
"""

# The WCAG's contrast, level AA: 4.5, or 3 for large text. Colors that are partly transparent are
# painted over what is behind them, on a canvas, which understands every notation of CSS.
CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const painted = new Map();
  const paint = (colors) => {
    const key = colors.join(' on ');
    if (!painted.has(key)) {
      canvas.fillStyle = 'white';
      canvas.fillRect(0, 0, 1, 1);
      for (const color of [...colors].reverse()) {
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
      }
      painted.set(key, [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3));
    }
    return painted.get(key);
  };
  const linear = (byte) => byte / 255 <= 0.03928 ? byte / 255 / 12.92
    : ((byte / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const backgrounds = (element) => element === null ? [] : [
    getComputedStyle(element).backgroundColor, ...backgrounds(element.parentElement)];
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || element.closest('script, style, noscript, template, svg')) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const style = getComputedStyle(element);
    const behind = backgrounds(element);
    const shades = [luminance(paint([style.color, ...behind])), luminance(paint(behind))];
    const contrast = (Math.max(...shades) + 0.05) / (Math.min(...shades) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (contrast < (large ? 3 : 4.5)) {
      const name = [element.tagName.toLowerCase(), ...element.classList].join('.');
      const quoted = JSON.stringify(text.slice(0, 40));
      found.set(name, `${name} ${quoted}: contrast ${contrast.toFixed(2)}`);
    }
  }
  return [...found.values()];
})()
"""


class SitePages:
    """The pages of a site, opened one after another in a browser."""

    def __init__(self, browser, site):
        self.browser, self.site = browser, Path(site).resolve()
        self.screens = {}  # of each page, on a desktop
        self._anchors, self._links = {}, {}

    def faults(self, page):
        """Yield what is wrong with the look of a page: both widths, both themes."""
        name = str(Path(page).resolve().relative_to(self.site))
        self.browser.errors.clear()
        for device, width in WIDTHS.items():
            self.browser.size(width, SCREEN_HEIGHT)
            self.browser.open(Path(page).resolve().as_uri())
            self.browser.wait(LOAD_PICTURES)
            layout = self.browser.evaluate(LAYOUT)
            if layout["width"] > width:
                yield f"{name}, {device}: {layout['width'] - width} pixels wider than the screen"
            if device == "desktop":
                self.screens[name] = layout["height"] / SCREEN_HEIGHT
                self._anchors[name] = {"", "top", *layout["anchors"]}
                self._links[name] = set(layout["links"])
                yield from (f"{name}: no picture {source}" for source in layout["missing"])
            for theme in ("light", "dark"):
                self.browser.size(width, SCREEN_HEIGHT, dark=theme == "dark")
                self.browser.wait(THEME)
                faint = self.browser.evaluate(CONTRAST)
                yield from (f"{name}, {device}, {theme}: {text}" for text in faint)
        yield from (f"{name}: {error}" for error in self.browser.errors)

    def dead_links(self):
        """Yield the links of all opened pages that lead to no page or anchor of the site."""
        for name, links in self._links.items():
            for link in sorted(links):
                address = urlsplit(link)
                if address.scheme != "file":
                    continue
                path, anchor = Path(unquote(address.path)), unquote(address.fragment)
                if not (path.is_file() and path.is_relative_to(self.site)):
                    yield f"{name}: no page {link}"
                    continue
                anchors = self._anchors.get(str(path.relative_to(self.site)))
                if anchors is not None and anchor not in anchors:
                    yield f"{name}: no anchor {link}"
