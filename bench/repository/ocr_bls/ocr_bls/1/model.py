"""The work of examples/ensembles/ocr as one Python model: what users write for Triton, with OpenCV, numpy and pyclipper.

The detector, the direction classifier and the recogniser are models of the same server, which it calls (BLS). Each
network gets one request for each image: all crops are one batch, those of the recogniser padded to the widest.
The bench puts characters.txt of the example beside this file.
"""

import math
import pathlib

import cv2
import numpy as np
import pyclipper
import triton_python_backend_utils as pb_utils

MAX_SIDE, MIN_SIDE, MIN_HEIGHT, MAX_RATIO = 2000, 30, 30, 8
DETECTOR_SIDE = 736
THRESHOLD, BOX_THRESHOLD, UNCLIP, MIN_BOX, MAX_BOXES = 0.3, 0.5, 0.35, 3, 1000
HEIGHT, DIRECTION_WIDTH, LEAST_WIDTH = 48, 192, 320
TURN, UPSIDE_DOWN, LEAST_SCORE = 1.5, 0.9, 0.5
KERNEL = np.ones((2, 2), np.uint8)


class TritonPythonModel:
    def initialize(self, args):
        cv2.setNumThreads(1)  # the instances share the cores
        names = pathlib.Path(__file__).with_name("characters.txt").read_text(encoding="utf-8").splitlines()
        self.characters = np.array(["", *names, " "], object)

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        rows = [self.read(row[0]) for row in pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()]
        most = max(len(texts) for texts, _, _ in rows)
        text = np.full((len(rows), most), "", object)
        score, boxes = np.zeros((len(rows), most), np.float32), np.zeros((len(rows), most, 4, 2), np.float32)
        for i, (texts, scores, found) in enumerate(rows):
            text[i, : len(texts)], score[i, : len(texts)], boxes[i, : len(texts)] = texts, scores, found
        counts = np.array([[len(texts)] for texts, _, _ in rows], np.int32)
        return pb_utils.InferenceResponse([
            pb_utils.Tensor("TEXT", text), pb_utils.Tensor("SCORE", score), pb_utils.Tensor("BOXES", boxes), pb_utils.Tensor("COUNT", counts),
        ])  # fmt: skip

    def read(self, file):
        """Returns the texts of an image file, their scores and their boxes."""
        image = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
        if image is None:
            raise pb_utils.TritonModelException("IMAGE is no image that OpenCV reads")
        pixels, ratio, top = prepared(image)
        boxes = self.detect(pixels)
        if not boxes:
            return [], [], np.zeros((0, 4, 2), np.float32)
        crops = [crop(pixels, box) for box in boxes]
        texts, scores = self.recognise(self.upright(crops))
        keep = scores >= LEAST_SCORE
        boxes = (np.array(boxes, np.float32) - (0, top)) * ratio
        boxes = np.clip(boxes, 0, image.shape[1::-1])
        return texts[keep], scores[keep], boxes[keep]

    def detect(self, pixels):
        h, w = pixels.shape[:2]
        scale = max(DETECTOR_SIDE / min(h, w), 1)
        size = multiple(int(w * scale)), multiple(int(h * scale))
        x = normalised(cv2.resize(pixels, size))
        return boxes_of(infer("ocr_detector", "map", x[None])[0, 0], w, h)

    def upright(self, crops):
        x = np.zeros((len(crops), 3, HEIGHT, DIRECTION_WIDTH), np.float32)
        for i, c in enumerate(crops):
            fit(c, x[i])
        scores = infer("ocr_direction", "scores", x)
        return [cv2.rotate(c, cv2.ROTATE_180) if s[1] > UPSIDE_DOWN else c for c, s in zip(crops, scores)]

    def recognise(self, crops):
        ratio = max(LEAST_WIDTH / HEIGHT, *(c.shape[1] / c.shape[0] for c in crops))
        x = np.zeros((len(crops), 3, HEIGHT, int(HEIGHT * ratio)), np.float32)
        for i, c in enumerate(crops):
            fit(c, x[i])
        return self.decode(infer("ocr_recogniser", "scores", x))

    def decode(self, scores):
        """CTC: repeated characters are one, and the first class is no character."""
        best, values = scores.argmax(2), scores.max(2)
        chosen = best != 0
        chosen[:, 1:] &= best[:, 1:] != best[:, :-1]
        texts, sure = np.empty(len(best), object), np.zeros(len(best), np.float32)
        for i, mask in enumerate(chosen):
            texts[i] = "".join(self.characters[best[i][mask]])
            sure[i] = values[i][mask].mean() if mask.any() else 0
        return texts, sure


def infer(model, output, x):
    """Calls a model of the server with one tensor."""
    response = pb_utils.InferenceRequest(model_name=model, requested_output_names=[output], inputs=[pb_utils.Tensor("x", x)]).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, output).as_numpy()


def multiple(n):
    return round(n / 32) * 32


def prepared(image):
    """Returns an image with sides within limits, the factor of its size, and the height of the padding above it."""
    h, w = image.shape[:2]
    ratio = (1, 1)
    if max(h, w) > MAX_SIDE or min(h, w) < MIN_SIDE:
        scale = MAX_SIDE / max(h, w) if max(h, w) > MAX_SIDE else MIN_SIDE / min(h, w)
        image = cv2.resize(image, (multiple(int(w * scale)), multiple(int(h * scale))))
        ratio = w / image.shape[1], h / image.shape[0]
        h, w = image.shape[:2]
    top = 0
    if h <= MIN_HEIGHT or w / h > MAX_RATIO:
        top = abs(max(w // MAX_RATIO, MIN_HEIGHT) * 2 - h) // 2
        image = cv2.copyMakeBorder(image, top, top, 0, 0, cv2.BORDER_CONSTANT)
    return image, ratio, top


def normalised(image):
    """Returns an image of bytes as [3, h, w] from -1 to 1."""
    x = image.astype(np.float32)
    x *= 1 / 127.5
    x -= 1
    return x.transpose(2, 0, 1)


def fit(image, x):
    """Writes an image to the left of x, [3, 48, w]."""
    h, w = image.shape[:2]
    w = min(math.ceil(HEIGHT * w / h), x.shape[2])
    x[:, :, :w] = normalised(cv2.resize(image, (w, HEIGHT)))


def boxes_of(probability, width, height):
    """Returns the boxes of text of a map, for an image of the given size, from top to bottom."""
    mask = cv2.dilate((probability > THRESHOLD).astype(np.uint8), KERNEL)
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    boxes, factor = [], (width / probability.shape[1], height / probability.shape[0])
    for contour in contours[:MAX_BOXES]:
        points, side = rectangle(contour)
        if side < MIN_BOX or mean(probability, points) < BOX_THRESHOLD:
            continue
        points, side = rectangle(unclipped(points))
        if side < MIN_BOX + 2:
            continue
        box = np.clip(np.round(points * factor), 0, (width, height)).astype(np.int32)
        box = np.clip(clockwise(box), 0, (width - 1, height - 1)).astype(np.float32)
        if int(np.linalg.norm(box[0] - box[1])) > 3 and int(np.linalg.norm(box[0] - box[3])) > 3:
            boxes.append(box)
    return in_order(boxes)


def rectangle(contour):
    """Returns the corners of the smallest rectangle around a contour, from the top left, and its shorter side."""
    r = cv2.minAreaRect(contour)
    p = sorted(cv2.boxPoints(r), key=lambda p: p[0])
    left, right = sorted(p[:2], key=lambda p: p[1]), sorted(p[2:], key=lambda p: p[1])
    return np.array([left[0], right[0], right[1], left[1]]), min(r[1])


def clockwise(box):
    p = box[np.argsort(box[:, 0])]
    left, right = p[:2][np.argsort(p[:2, 1])], p[2:][np.argsort(p[2:, 1])]
    return np.array([left[0], right[0], right[1], left[1]])


def mean(probability, points):
    """Returns the mean of a map within a rectangle."""
    h, w = probability.shape
    x0, x1 = np.clip([math.floor(points[:, 0].min()), math.ceil(points[:, 0].max())], 0, w - 1)
    y0, y1 = np.clip([math.floor(points[:, 1].min()), math.ceil(points[:, 1].max())], 0, h - 1)
    mask = np.zeros((y1 - y0 + 1, x1 - x0 + 1), np.uint8)
    cv2.fillPoly(mask, [(points - (x0, y0)).astype(np.int32)], 1)
    return cv2.mean(probability[y0 : y1 + 1, x0 : x1 + 1], mask)[0]


def unclipped(points):
    """Returns a rectangle grown by a share of its area."""
    distance = cv2.contourArea(points) * UNCLIP / cv2.arcLength(points, True)
    offset = pyclipper.PyclipperOffset()
    offset.AddPath(points, pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    return np.array(offset.Execute(distance)[0])


def in_order(boxes):
    """Sorts boxes by lines: those within 10 pixels of height are one line, from left to right."""
    boxes = sorted(boxes, key=lambda b: (b[0][1], b[0][0]))
    for i in range(len(boxes) - 1):
        for j in range(i, -1, -1):
            if abs(boxes[j + 1][0][1] - boxes[j][0][1]) >= 10 or boxes[j + 1][0][0] >= boxes[j][0][0]:
                break
            boxes[j], boxes[j + 1] = boxes[j + 1], boxes[j]
    return boxes


def crop(image, box):
    """Returns the content of a box, straightened."""
    w = int(max(np.linalg.norm(box[0] - box[1]), np.linalg.norm(box[2] - box[3])))
    h = int(max(np.linalg.norm(box[0] - box[3]), np.linalg.norm(box[1] - box[2])))
    m = cv2.getPerspectiveTransform(box, np.float32([[0, 0], [w, 0], [w, h], [0, h]]))
    out = cv2.warpPerspective(image, m, (w, h), borderMode=cv2.BORDER_REPLICATE, flags=cv2.INTER_CUBIC)
    return cv2.rotate(out, cv2.ROTATE_90_COUNTERCLOCKWISE) if h / w >= TURN else out
