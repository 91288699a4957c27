"""Stands in for the OpenTelemetry Collector that Triton's trace tests start.

It takes OTLP over HTTP on port 10000. A burst of exports becomes one line of JSON in collected_traces.json, with the spans of
one resource merged and ids in hex, as the Collector's batch processor and file exporter write it.
"""

import base64
import http.server
import json
import threading
import time

from google.protobuf.json_format import MessageToDict, Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

QUIET = 1.5  # seconds without an export that end a burst
FILE = "collected_traces.json"
IDS = ("traceId", "spanId", "parentSpanId")

lock = threading.Lock()
pending = []
last = 0.0  # when the last export came


def normalize(value, in_hex):
    """Writes ids in hex, in place, and the fields that the Collector always writes. JSON bodies have ids in hex already."""
    if isinstance(value, list):
        for item in value:
            normalize(item, in_hex)
    if not isinstance(value, dict):
        return
    for key in IDS:
        if key in value and not in_hex:
            value[key] = base64.b64decode(value[key]).hex()
    if "spanId" in value and "name" in value:
        value.setdefault("parentSpanId", "")
        value.setdefault("events", [])
    for item in value.values():
        normalize(item, in_hex)


def merge(exports):
    """The resource spans of a burst, one for each resource."""
    merged = []
    for export in exports:
        for spans in export.get("resourceSpans", []):
            scopes = spans["scopeSpans"]
            same = next((m for m in merged if m.get("resource") == spans.get("resource")), None)
            if same is None:
                same = {**spans, "scopeSpans": scopes[:1]}
                merged.append(same)
                scopes = scopes[1:]
            for scope in scopes:
                same["scopeSpans"][0]["spans"] += scope["spans"]
    return merged


class Handler(http.server.BaseHTTPRequestHandler):
    """Takes exports. The methods are those of http.server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global last
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_json = "json" in self.headers.get("Content-Type", "")
        request = Parse(body, ExportTraceServiceRequest()) if is_json else ExportTraceServiceRequest.FromString(body)
        export = MessageToDict(request)
        normalize(export, is_json)  # base64 of what was parsed as base64 is the text of the body again
        with lock:
            pending.append(export)
            last = time.time()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def flush():
    """Writes bursts, for ever."""
    while True:
        time.sleep(0.1)
        with lock:
            if not pending or time.time() - last < QUIET:
                continue
            line = json.dumps({"resourceSpans": merge(pending)})
            pending.clear()
        with open(FILE, "a") as f:
            f.write(line + "\n")


if __name__ == "__main__":
    open(FILE, "w").close()
    threading.Thread(target=flush, daemon=True).start()
    http.server.ThreadingHTTPServer(("127.0.0.1", 10000), Handler).serve_forever()
