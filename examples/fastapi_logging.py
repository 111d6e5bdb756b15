# For teams that serve a classifier with FastAPI and have no prediction log yet.
# Every answer is logged to Parquet files by day, behind the request: it waits for no disk.
# Labels come later in a table of `id` and `label`; `huc-monitor init` reads both.
"""Log what a web service predicts, so that `huc-monitor check` can watch it.

Run the service:    uvicorn fastapi_logging:app
Ask it:             curl 'localhost:8000/predict?length=4.1&width=1.3'
Watch it:           huc-monitor init predictions --labels labels.parquet --tree tree.yaml

Run as a script, it sends itself 100 requests and shows the log.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import numpy as np
import pyarrow.parquet as pq
from fastapi import FastAPI

import huc_monitor as hm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLASSES = ("setosa", "versicolor", "virginica")
CENTRES = np.array([[1.5, 0.2], [4.3, 1.3], [5.6, 2.0]])


def predict(length: float, width: float) -> np.ndarray[Any, Any]:
    """Stand in for a model: nearer classes are likelier."""
    logits = -np.square(CENTRES - [length, width]).sum(axis=1)
    p = np.exp(logits - logits.max())
    return np.asarray(p / p.sum())


@asynccontextmanager
async def lifespan(service: FastAPI) -> AsyncIterator[None]:
    """Open the log when a worker starts, and write what is left when it stops."""
    service.state.log = hm.PredictionLogger(
        os.environ.get("PREDICTIONS", "predictions"),
        classes=CLASSES,
        features={"length": float},
        model_version="1",
    )
    yield
    service.state.log.close()


app = FastAPI(lifespan=lifespan)


@app.get("/predict")
def answer(length: float, width: float) -> dict[str, Any]:
    """Predict, log, and hand out the id that the label will be joined by."""
    p = predict(length, width)
    key = app.state.log.log(p, features={"length": length})
    return {"id": key, "probabilities": dict(zip(CLASSES, p.tolist(), strict=True))}


def main() -> None:
    """Send 100 requests and read the log back."""
    import uvicorn

    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        os.environ["PREDICTIONS"] = folder
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [free]})
        serving.start()
        while not server.started:
            time.sleep(0.01)
        for length, width in np.random.default_rng(0).uniform([1, 0], [7, 2.5], (100, 2)):
            with urlopen(f"http://{address}/predict?length={length}&width={width}") as response:
                response.read()
        server.should_exit = True
        serving.join()
        table = pq.read_table(folder)
        print(f"{table.num_rows} predictions logged: {', '.join(table.column_names)}")


if __name__ == "__main__":
    main()
