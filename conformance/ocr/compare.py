#!/usr/bin/env python3
"""Compares the native steps of a text reader with a public reader, RapidOCR, on its own three networks.

usage: python compare.py --server PROGRAM --models EXAMPLE [--walk] [--json] [--images FOLDER] [NAME ...]

EXAMPLE is the folder of the example ocr, which is served with RapidOCR's networks in place of its own. With --walk the
ensemble is left out, and its steps are requests of this script.
Prints a line for each image: how many lines of text RapidOCR reads, whether the texts, the boxes and the scores are
equal, and the largest difference of a score. NAME is a part of the name of an image. The exit status is 1 if a text or a box differs.

It needs the packages of conformance/testdata/requirements-ocr.txt: scripts/prepare-conformance ocr.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

import numpy as np
import onnxruntime
import rapidocr_onnxruntime
import tritonclient.http as triton

import images

# The networks: the file in RapidOCR's package, the name of the output in the example, and RapidOCR's.
NETWORKS = {
    "ocr_detector": ("ch_PP-OCRv4_det_infer.onnx", "map", "sigmoid_0.tmp_0"),
    "ocr_direction": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", "scores", "save_infer_model/scale_0.tmp_1"),
    "ocr_recogniser": ("ch_PP-OCRv4_rec_infer.onnx", "scores", "softmax_11.tmp_0"),
}


def repository(example, to, walk):
    """Makes the repository of the example with RapidOCR's networks: what examples/ensembles/ocr/README.md describes."""
    models = pathlib.Path(rapidocr_onnxruntime.__file__).parent / "models"
    for config in sorted(example.glob("*/config.pbtxt")):
        if not (walk and config.parent.name == "ocr"):
            shutil.copytree(config.parent, to / config.parent.name)
    for name, (file, *_) in NETWORKS.items():
        (to / name / "1").mkdir(exist_ok=True)
        shutil.copy(models / file, to / name / "1/model.onnx")
        (to / name / "config.pbtxt").write_text('platform: "onnxruntime_onnx"\nmax_batch_size: 64\ndynamic_batching { }\n')
    meta = onnxruntime.InferenceSession(models / NETWORKS["ocr_recogniser"][0]).get_modelmeta().custom_metadata_map
    (to / "ocr_text/characters.txt").write_text("\n".join(meta["character"].splitlines()) + "\n", encoding="utf-8")
    edit(to / "ocr_boxes/config.pbtxt", 'key: "unclip_ratio" value { string_value: "0.35" }', 'key: "unclip_ratio" value { string_value: "1.6" }')
    for name, (_, ours, theirs) in NETWORKS.items() if not walk else ():
        edit(to / "ocr/config.pbtxt", rf'(?s)(model_name: "{name}".*?output_map \{{ key: )"{ours}"', rf'\1"{theirs}"', regular=True)


def edit(path, old, new, regular=False):
    text, n = re.subn(old if regular else re.escape(old), new, path.read_text(), count=1)
    if n != 1:
        raise SystemExit(f"{path} has no {old}")
    path.write_text(text)


class Server:
    """A server, as a context manager that returns a client."""

    def __init__(self, program, models):
        self.args = [program, "serve", "--model-repository", models, "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]

    def __enter__(self):
        self.process = subprocess.Popen(self.args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        log = []
        for line in self.process.stdout:
            log.append(line)
            if found := re.search(r"Started HTTPService at \S*:(\d+)", line):
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return triton.InferenceServerClient(f"localhost:{found[1]}", network_timeout=3600, connection_timeout=3600)
        raise SystemExit("the server ended:\n" + "".join(log))

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


DTYPES = {np.dtype(np.float32): "FP32", np.dtype(np.int32): "INT32", np.dtype(np.uint8): "UINT8", np.dtype(object): "BYTES"}


class Graph:
    """The ensemble: one request for each image."""

    def __init__(self, client):
        self.client = client

    def infer(self, model, **inputs):
        list_ = []
        for name, value in inputs.items():
            t = triton.InferInput(name, value.shape, DTYPES[value.dtype])
            t.set_data_from_numpy(value)
            list_.append(t)
        got = self.client.infer(model, list_)
        return {o["name"]: got.as_numpy(o["name"]) for o in got.get_response()["outputs"]}

    def read(self, file):
        got = self.infer("ocr", IMAGE=np.array([[file]], object))
        return [t.decode() for t in got["TEXT"][0]], got["BOXES"][0], got["SCORE"][0]


class Walk(Graph):
    """The graph, walked from here: each step is a request to its model."""

    def network(self, model, value):
        return next(iter(self.infer(model, x=value).values()))

    def read(self, file):
        image = self.infer("ocr_image", IMAGE=np.array([[file]], object))
        pixels = image["image"]
        small = self.infer("ocr_detector_input", IMAGE=pixels)
        boxes = self.infer("ocr_boxes", MAP=self.network("ocr_detector", small["image"]), geometry=small["geometry"])
        crops = self.infer("ocr_crops", IMAGE=pixels, BOXES=boxes["BOXES"], COUNT=boxes["COUNT"])
        texts = [self.line(data, shape, width) for data, shape, width in zip(crops["CROPS"][0], crops["SHAPES"][0], crops["WIDTHS"][0])]
        n = len(texts)
        lines = self.infer(
            "ocr_lines", TEXTS=np.array([t for t, _ in texts], object).reshape(1, n, 1), SCORES=np.array([s for _, s in texts], np.float32).reshape(1, n, 1),
            BOXES=boxes["BOXES"], geometry=image["geometry"],
        )  # fmt: skip
        return [t.decode() for t in lines["TEXT"][0]], lines["BOXES"][0], lines["SCORE"][0]

    def line(self, data, shape, width):
        crop = np.frombuffer(data, np.uint8).reshape(1, *shape)
        direction = self.network("ocr_direction", self.infer("ocr_direction_input", IMAGE=crop)["image"])
        upright = self.infer("ocr_upright", IMAGE=crop, scores=direction)["image"]
        ready = self.infer("ocr_recogniser_input", IMAGE=upright, WIDTH=width.reshape(1, 1))["image"]
        got = self.infer("ocr_text", scores=self.network("ocr_recogniser", ready))
        return got["TEXT"][0][0], got["SCORE"][0][0]


def reference(reader, file):
    found, _ = reader(file)
    found = found or []
    return [t for _, t, _ in found], np.array([b for b, _, _ in found], np.float32).reshape(-1, 4, 2), np.array([s for _, _, s in found], np.float32)


def compared(name, want, got):
    texts = want[0] == got[0]
    boxes = want[1].shape == got[1].shape and bool((np.abs(want[1] - got[1]) < 1e-3).all())  # pixels
    apart = float(np.abs(want[2] - got[2]).max(initial=0)) if want[2].shape == got[2].shape else None
    return {"image": name, "lines": len(want[0]), "texts": texts, "boxes": boxes, "score": apart, "want": want[0], "got": got[0]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server", required=True)
    p.add_argument("--models", required=True, type=pathlib.Path)
    p.add_argument("--images", type=pathlib.Path, help="folder of more images")
    p.add_argument("names", nargs="*")
    p.add_argument("--walk", action="store_true")
    p.add_argument("--json", action="store_true")
    args = p.parse_args()
    files = [(name, images.encoded(name, img)) for name, img in images.all_images()]
    files += [(f.name, f.read_bytes()) for f in sorted(args.images.iterdir())] if args.images else []
    files = [f for f in files if not args.names or any(n in f[0] for n in args.names)]
    public, failed, lines = rapidocr_onnxruntime.RapidOCR(), 0, 0
    with tempfile.TemporaryDirectory(prefix="tutti-ocr-") as folder:
        models = pathlib.Path(folder) / "models"
        models.mkdir()
        repository(args.models, models, args.walk)
        with Server(args.server, models) as client:
            reader = Walk(client) if args.walk else Graph(client)
            for name, file in files:
                result = compared(name, reference(public, file), reader.read(file))
                failed += not (result["texts"] and result["boxes"])
                lines += result["lines"]
                if args.json:
                    print(json.dumps(result, ensure_ascii=False), flush=True)
                    continue
                print(f"{name:<24} {result['lines']:>3} lines  texts {'equal' if result['texts'] else 'DIFFER'}  boxes {'equal' if result['boxes'] else 'DIFFER'}  score {result['score']}")
                if not result["texts"]:
                    print("   ", result["want"], "\n   ", result["got"])
    if not args.json:
        print(f"{len(files) - failed} of {len(files)} images with {lines} lines: texts and boxes equal")
    return 1 if failed else 0


sys.exit(main())
