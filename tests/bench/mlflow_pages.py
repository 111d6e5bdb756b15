"""How long MLflow's pages of a large monitor take in a browser, and what they show first.

Run: python tests/bench/mlflow_cost.py FOLDER, then python tests/bench/mlflow_pages.py FOLDER.
Prints one JSON line per page: seconds until the guilty branch is seen on its first screen, nothing
scrolled or clicked, or null where it is not seen within a minute. Screenshots are in the folder.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from mlflow import MlflowClient

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.browser import show, start_browser
from support.mlflow_servers import mlflow_server

GUILTY = "n3"
LONGEST = 60.0
# Text that is inside the first screen, is not covered, and names the branch as a word.
SEEN = r"""
const word = new RegExp("(^|[^\\w])" + arguments[0] + "([^\\w]|$)");
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode;
  if (!word.test(text.textContent)) continue;
  const range = document.createRange();
  range.selectNodeContents(text);
  const box = range.getBoundingClientRect();
  const x = box.left + Math.min(box.width, 20) / 2, y = box.top + box.height / 2;
  if (!box.width || x < 0 || y < 0 || x > innerWidth || y > innerHeight) continue;
  const top = document.elementFromPoint(x, y);
  if (top && (top.contains(text) || text.parentElement.contains(top))) return text.textContent;
}
return null;
"""


def pages(client):
    """Addresses of what a person opens, by name."""
    found = client.get_experiment_by_name("huc-monitor/triage").experiment_id
    (monitor,) = client.search_runs([found], "attributes.run_name = 'monitor triage'")
    order = ["params.`window.start` DESC"]
    newest = client.search_runs([found], "tags.`huc.kind` = 'window'", order_by=order)[0]
    (model,) = client.get_run(newest.info.run_id).inputs.model_inputs
    runs = f"/#/experiments/{found}/runs"
    return {
        "list of runs": f"{runs}?compareRunsMode=TABLE",
        "charts of all runs": f"{runs}?compareRunsMode=CHART",
        "monitor": f"{runs}/{monitor.info.run_id}",
        "monitor's charts": f"{runs}/{monitor.info.run_id}/model-metrics",
        "newest window": f"{runs}/{newest.info.run_id}",
        "newest window's files": f"{runs}/{newest.info.run_id}/artifacts",
        "model version": "/#/models/triage/versions/1",
        "logged model": f"/#/experiments/{found}/models/{model.model_id}",
    }


def wait_for(browser, address):
    """Seconds until the branch is seen, and the text that names it."""
    start = time.perf_counter()
    show(browser, address)
    while time.perf_counter() < start + LONGEST:
        if text := browser.execute_script(SEEN, GUILTY):
            return round(time.perf_counter() - start, 1), text
        time.sleep(0.1)
    return None, None


def main():
    """Open all pages in turn."""
    folder = Path(sys.argv[1]).resolve()
    database = f"sqlite:///{folder}/mlflow.db"
    addresses = pages(MlflowClient(database))
    with mlflow_server(database, folder) as address:
        browser = start_browser(folder / "profile")
        try:
            browser.set_window_size(1440, 900)
            for name, place in addresses.items():
                seconds, text = wait_for(browser, address + place)
                time.sleep(2)  # what comes later belongs into the picture, not into the time
                browser.save_screenshot(str(folder / f"{name.replace(' ', '_')}.png"))
                load = round(os.getloadavg()[0], 1)
                print(json.dumps({"page": name, "seconds": seconds, "text": text, "load": load}))
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
