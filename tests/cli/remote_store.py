# SPDX-License-Identifier: Apache-2.0
"""An object store on this machine: moto's S3 behind a front that counts what is sent and lets it go wrong."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pytest


@dataclasses.dataclass
class Request:
    method: str
    path: str  # "/bucket/key"
    range: str  # "bytes=0-99", or ""


# What goes wrong with a request: None for nothing, "deny", "error", "cut" (half of the body comes), "hang".
Fault = Callable[[Request], Optional[str]]


class Traffic:
    """Stands in front of a WSGI application."""

    def __init__(self, application: Any):
        self.application = application
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.forget()

    def forget(self) -> None:
        self.requests: list[Request] = []
        self.sent: dict[str, int] = {}  # bytes of bodies by path
        self.fault: Fault = lambda request: None

    def bytes_of(self, suffix: str) -> int:
        return sum(size for path, size in self.sent.items() if path.endswith(suffix))

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        request = Request(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("HTTP_RANGE", ""))
        with self.lock:
            self.requests.append(request)
            fault = self.fault(request)
        if fault == "deny":
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            yield b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            return
        if fault == "error":
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            yield b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
            return
        if fault == "hang":
            self.released.wait(60)
        body = b"".join(self.application(environ, start_response))
        if fault == "cut":
            body = body[: len(body) // 2]
        with self.lock:
            self.sent[request.path] = self.sent.get(request.path, 0) + len(body)
        yield body


class Store:
    """Buckets of S3 at `endpoint`; `s3` is fsspec's way to fill them."""

    def __init__(self, traffic: Traffic, endpoint: str):
        import s3fs

        self.traffic = traffic
        self.endpoint = endpoint
        self.s3 = s3fs.S3FileSystem(
            key="testing", secret="testing", endpoint_url=endpoint, client_kwargs={"region_name": "us-east-1"}
        )
        self.environment = {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_MAX_ATTEMPTS": "1",  # botocore's own waits would make a minute of each fault; s3fs and assay try again
        }

    def put(self, folder: Path, place: str) -> str:
        """Copies a folder or file; returns its URL."""
        self.s3.put(str(folder), place, recursive=True)
        self.s3.invalidate_cache()
        return f"s3://{place}"


def serve() -> Iterator[Store]:
    """One store as long as the generator lives."""
    pytest.importorskip("s3fs")
    moto_server = pytest.importorskip("moto.moto_server.werkzeug_app")
    serving = pytest.importorskip("werkzeug.serving")

    traffic = Traffic(moto_server.DomainDispatcherApplication(moto_server.create_backend_app))
    server = serving.make_server("127.0.0.1", 0, traffic, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Store(traffic, f"http://127.0.0.1:{server.server_port}")
    finally:
        traffic.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
