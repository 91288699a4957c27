"""What clients of others find changed: where the server listens, and what lies behind an address of the internet.

Their scripts stay as they are. TUTTI_REAL_PORTS says where the ports are that they name, as in 8000=127.0.0.1:4711;
every image that they download is one drawn here.
"""

import importlib.abc
import importlib.machinery
import io
import os
import sys

PORTS = dict(p.split("=") for p in os.environ.get("TUTTI_REAL_PORTS", "").split(",") if p)


def moved(url):
    """The address that stands for one of a script."""
    for port, address in PORTS.items():
        for host in ("localhost", "127.0.0.1"):
            url = url.replace(f"{host}:{port}", address)
    return url


def client(module):
    """Has the client of a tritonclient module go to the server under test."""
    kind = module.InferenceServerClient
    before = kind.__init__

    def init(self, url, *args, **kwargs):
        before(self, moved(url), *args, **kwargs)

    kind.__init__ = init


def channels(module):
    """The same for a script that opens channels by itself."""
    for name in ("insecure_channel", "secure_channel"):
        open_channel = getattr(module, name)
        setattr(module, name, lambda target, *args, _open=open_channel, **kwargs: _open(moved(target), *args, **kwargs))


def downloads(module):
    """Makes requests.get return a drawn image for the address of one, and sends the rest to the server under test."""
    get = module.get

    class Image:
        def __init__(self):
            self.raw = io.BytesIO(drawn())

    def get_drawn(url, *args, **kwargs):
        return Image() if url.endswith((".jpg", ".jpeg", ".png")) else get(moved(url), *args, **kwargs)

    module.get = get_drawn


def drawn():
    """A PNG of 320 by 240 with two rectangles."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (320, 240), (40, 60, 80))
    draw = ImageDraw.Draw(image)
    draw.rectangle((30, 40, 150, 120), fill=(250, 240, 230))
    draw.rectangle((180, 140, 300, 220), fill=(200, 30, 60))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


CHANGES = {
    "tritonclient.http._client": client,
    "tritonclient.http.aio": client,
    "tritonclient.grpc._client": client,
    "tritonclient.grpc.aio": client,
    "grpc": channels,
    "requests": downloads,
}


class Finder(importlib.abc.MetaPathFinder):
    """Changes the modules of CHANGES when they are imported."""

    def find_spec(self, name, path, target=None):
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            CHANGES[name](module)

        spec.loader.exec_module = exec_module
        return spec


if PORTS:
    sys.meta_path.insert(0, Finder())
