"""The crops of the boxes that were found in one image: the rows of the response are boxes, not images."""

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils

CORNERS = np.array([[0, 31], [0, 0], [99, 0], [99, 31]], np.float32)  # of a crop


def boxes(scores, geometry):
    """Rotated rectangles with their scores: a cell of 4 by 4 pixels has the distances to four sides, and an angle."""
    found, kept = [], []
    for y, x in zip(*np.nonzero(scores[..., 0] >= 0.5)):
        top, right, bottom, left, angle = (float(v) for v in geometry[y, x])
        sin, cos = np.sin(angle), np.cos(angle)
        h, w = top + bottom, right + left
        at = (4 * x + cos * right + sin * bottom, 4 * y - sin * right + cos * bottom)
        first, last = (-sin * h + at[0], -cos * h + at[1]), (-cos * w + at[0], sin * w + at[1])
        found.append((((first[0] + last[0]) / 2, (first[1] + last[1]) / 2), (w, h), -np.degrees(angle)))
        kept.append(float(scores[y, x, 0]))
    return found, kept


def crops(scores, geometry, frame):
    frame = cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
    found, kept = boxes(scores, geometry)
    rows = []
    for i in cv2.dnn.NMSBoxesRotated(found, kept, 0.5, 0.4):
        matrix = cv2.getPerspectiveTransform(np.asarray(cv2.boxPoints(found[i])), CORNERS)
        crop = cv2.cvtColor(cv2.warpPerspective(frame, matrix, (100, 32)), cv2.COLOR_BGR2GRAY)
        rows.append((crop / 255 - 0.5)[None] * 2)
    return np.stack(rows).astype(np.float32)


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for r in requests:
            inputs = [pb_utils.get_input_tensor_by_name(r, f"detection_postprocessing_input_{i}").as_numpy() for i in (1, 2, 3)]
            rows = crops(*(x[0] for x in inputs))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("detection_postprocessing_output", rows)]))
        return responses
