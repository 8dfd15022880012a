"""Headless Chromium through Selenium, for the tests of the pages."""
import shutil
from pathlib import Path

import pytest

FLAGS = ("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
         "--disable-background-networking --disable-component-update").split()
NAMES = "chromium", "chromium-browser", "google-chrome"


class Browser:
    def __init__(self, folder):
        webdriver = pytest.importorskip("selenium.webdriver", reason="no Selenium: pip install selenium")
        chromium = next(filter(None, map(shutil.which, NAMES)), None)
        driver = shutil.which("chromedriver")
        if not chromium or not driver:
            pytest.skip("Chromium or chromedriver is not installed: apt-get install chromium chromium-driver")
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in [*FLAGS, f"--user-data-dir={folder}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        self.driver.set_script_timeout(200)         # a busy machine is slow

    def open(self, path, width=1280, height=800, dark=False, address=""):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    dict(width=width, height=height, deviceScaleFactor=1, mobile=width < 500))
        scheme = dict(name="prefers-color-scheme", value="dark" if dark else "light")
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dict(features=[scheme]))
        self.visit("about:blank")
        self.visit(Path(path).as_uri() + address)

    def visit(self, address):
        self.driver.get(address)

    def run(self, script):
        return self.driver.execute_script(script)

    def texts(self, selector):
        return self.run(f"return [...document.querySelectorAll({selector!r})].map(e => e.textContent)")

    def press(self, key):
        """As a keyboard does, to whatever has the focus: an element's send_keys now and then calls the
        document's body "not interactable"."""
        from selenium.webdriver import ActionChains
        ActionChains(self.driver).send_keys(key).perform()

    def complaints(self):
        return self.driver.get_log("browser")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.driver.quit()
