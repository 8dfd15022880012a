"""Pictures of the page, taken in Chromium:  python -m pages.shots

    pages/race.webp     the race, for the README; its first frame is the end, for readers who see a still one
    pages/card.png      the preview of a link to the site

Needs Selenium, Pillow, Chromium and chromedriver.
"""
import shutil
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from loading import command_line
from loading.files import rewrite
from pages.files import MARK
from pages.frame import HERE
from pages.site import index_page

FLAGS = "--headless --no-sandbox --disable-gpu --hide-scrollbars".split()
SECONDS, PER_SECOND, HOLD = 10, 10, 3                   # of the race; frames a second; seconds of its end


def main():
    """Take the pictures of the page anew, and write them to pages/."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo
    from selenium import webdriver  # here: the site is built without them
    options, driver = webdriver.ChromeOptions(), shutil.which("chromedriver")
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    if not driver or not options.binary_location:
        raise ValueError("Chromium or chromedriver is missing: apt-get install chromium chromium-driver")
    for flag in FLAGS:
        options.add_argument(flag)
    with TemporaryDirectory() as folder, webdriver.Chrome(
            options, webdriver.ChromeService(driver)) as driver:
        path = Path(folder, "index.html")
        path.write_text(index_page({}), encoding="utf-8")

        def shot(view, now, width, height, scheme="light"):
            metrics = dict(width=width, height=height, deviceScaleFactor=1, mobile=False)
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            feature = dict(name="prefers-color-scheme", value=scheme)
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dict(features=[feature]))
            driver.get(f"{path.as_uri()}#view={view}&at={now}")
            return Image.open(BytesIO(driver.get_screenshot_as_png())).convert("RGB")

        card, mark = shot("card", 23, 1200, 630, "dark"), PngInfo()
        end = driver.execute_script("return finish()")
        times = [end * i / (SECONDS * PER_SECOND) for i in range(SECONDS * PER_SECOND)]
        first, *frames = [shot("card", now, 900, 480) for now in [end, *times, end]]
    mark.add_text("Comment", MARK)
    card.quantize(64).save(png := BytesIO(), "PNG", pnginfo=mark, optimize=True)
    rewrite(HERE / "card.png", png.getvalue())
    first.save(webp := BytesIO(), "WEBP", save_all=True, append_images=frames, loop=0, quality=70, method=4,
               duration=[1000 * HOLD, *[1000 // PER_SECOND] * len(times), 1000 * HOLD])
    rewrite(HERE / "race.webp", webp.getvalue())


if __name__ == "__main__":
    sys.exit(command_line.run(main))
