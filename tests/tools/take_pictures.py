"""Takes the pictures of the page, in Chromium: python tests/tools/take_pictures.py

    pages/race.webp     the race, for the README; its first frame is the end, for readers who see a still one
    pages/card.png      the preview of a link to the site

Rerun it when the page or the bundled pair changes.  Needs Selenium, Pillow, Chromium and chromedriver.
"""
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from engine.loading import command_line, packages

packages.require(__name__, "browser", "selenium", "PIL")

from browser import Browser
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from engine.loading.files import rewrite
from pages.files import MARK
from pages.frame import HERE
from pages.site import index_page

SECONDS, PER_SECOND, HOLD = 10, 10, 3                   # of the race; frames a second; seconds of its end
RACE, CARD = (900, 480), (1200, 630)
STYLE = """html { font-size: %s; overflow: hidden; } body { max-width: none; padding-block: .2rem; }
  :is(main > :not(#race, #dials), #top > :not(h1), footer, #bar, #presets, #preset-words, #legend, #said) {
    display: none !important; }
  .lane { margin: .1rem 0; } .text { height: calc(3.9em + .7rem) !important; font-size: 1.5rem !important;
    line-height: 1.3 !important; } #speed { font-size: 4.5rem !important; }"""


def shot(browser, path, now, size, dark=False):
    """The race on the page at `path`, without its buttons, at a time in steps -> an image."""
    browser.open(path, *size, dark=dark)
    style = STYLE % ("19.5px" if size == CARD else "15px")
    browser.run(f"""const sheet = new CSSStyleSheet();  // the policy forbids a style element
        sheet.replaceSync(`{style}`); document.adoptedStyleSheets = [sheet];
        play(false); s.now = {now}; draw()""")
    return Image.open(BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")


def main():
    """Take the pictures of the page."""
    with TemporaryDirectory() as folder:
        path, browser = Path(folder, "index.html"), Browser(Path(folder, "profile"))
        path.write_text(index_page({}), encoding="utf-8")
        card, mark = shot(browser, path, 23, CARD, dark=True), PngInfo()
        end = browser.run("return finish()")
        times = [end * i / (SECONDS * PER_SECOND) for i in range(SECONDS * PER_SECOND)]
        first, *frames = [shot(browser, path, now, RACE) for now in [end, *times, end]]
        browser.driver.quit()
    mark.add_text("Comment", MARK)
    card.quantize(64).save(png := BytesIO(), "PNG", pnginfo=mark, optimize=True)
    rewrite(HERE / "card.png", png.getvalue())
    first.save(webp := BytesIO(), "WEBP", save_all=True, append_images=frames, loop=0, quality=70, method=4,
               duration=[1000 * HOLD, *[1000 // PER_SECOND] * len(times), 1000 * HOLD])
    rewrite(HERE / "race.webp", webp.getvalue())


if __name__ == "__main__":
    sys.exit(command_line.run(main))
