"""A Chromium without a window, by WebDriver: plain HTTP with JSON."""

import base64
import contextlib
import json
import os
import urllib.error
import urllib.request

from processes import Program, Trouble, free_port, plain_environment, wait_until

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
WIDTH, HEIGHT = 1000, 1100
ENTER = "\ue007"


class Browser:
    def __init__(self, folder, ending):
        self.downloads = folder / "downloads"
        self.downloads.mkdir()
        port = free_port()
        self._session = f"http://127.0.0.1:{port}"
        environment = plain_environment(HOME=str(folder), TMPDIR=str(folder))
        driver = Program("chromedriver", ["chromedriver", f"--port={port}"], environment, f"{folder}/chromedriver.log")
        ending.callback(driver.kill)
        driver.start()
        wait_until("chromedriver answers", self._is_ready, 20)
        arguments = ["--headless=new", f"--window-size={WIDTH},{HEIGHT}", "--disable-gpu", "--disable-dev-shm-usage"]
        if os.geteuid() == 0:
            # Its own sandbox does not work for root; it looks at nothing but this service.
            arguments.append("--no-sandbox")
        options = {"args": arguments, "prefs": {"download.default_directory": str(self.downloads)}}
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}
        self._session += f"/session/{self._ask('/session', {'capabilities': wanted})['sessionId']}"
        ending.callback(self._end)

    def _is_ready(self):
        with contextlib.suppress(OSError):
            return self._ask("/status")["ready"]
        return False

    def _ask(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._session + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise Trouble(f"the browser: {json.load(error)['value']['message'].splitlines()[0]}") from None

    def _end(self):
        with contextlib.suppress(OSError, Trouble):
            self._ask("", method="DELETE")

    def open(self, url):
        self._ask("/url", {"url": url})

    def run(self, script, *arguments):
        return self._ask("/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        """What can be read there; empty where there is no such thing."""
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def _on(self, selector, action, body, tries=5):
        """The page's script may put another element in its place meanwhile."""
        try:
            return self._once_on(selector, action, body)
        except Trouble as trouble:
            if tries == 1 or "stale element" not in str(trouble):
                raise
            return self._on(selector, action, body, tries - 1)

    def _once_on(self, selector, action, body):
        element = self._ask("/element", {"using": "css selector", "value": selector})[ELEMENT]
        return self._ask(f"/element/{element}/{action}", body)

    def click(self, selector):
        self._on(selector, "click", {})

    def fill(self, selector, text):
        self._on(selector, "clear", {})
        self._on(selector, "value", {"text": text})

    def press_enter(self, selector):
        self._on(selector, "value", {"text": ENTER})

    def _devtools(self, command, **parameters):
        return self._ask("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def scheme(self, name):
        self._devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def width_of_a_phone(self):
        """Widths of the window and of what is in it, on a phone."""
        self._devtools("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
        found = self.run("return {page: document.documentElement.scrollWidth, window: window.innerWidth}")
        self._devtools("Emulation.clearDeviceMetricsOverride")
        return found

    @contextlib.contextmanager
    def offline(self):
        state = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._devtools("Network.enable")
        self._devtools("Network.emulateNetworkConditions", offline=True, **state)
        try:
            yield
        finally:
            self._devtools("Network.emulateNetworkConditions", offline=False, **state)

    def screenshot(self):
        return base64.b64decode(self._ask("/screenshot"))
