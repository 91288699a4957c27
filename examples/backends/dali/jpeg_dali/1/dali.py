"""Decodes a JPEG file, resizes the image to 32 x 32, and normalises it with the mean and the deviation of ImageNet."""

import nvidia.dali as dali
from nvidia.dali import fn, types
from nvidia.dali.plugin.triton import autoserialize


@autoserialize
@dali.pipeline_def(batch_size=16, num_threads=2, device_id=None, output_dtype=[types.FLOAT], output_ndim=[3])
def pipe():
    files = fn.external_source(device="cpu", name="IMAGE", dtype=types.UINT8, ndim=1)
    images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
    images = fn.resize(images, resize_x=32, resize_y=32)
    return fn.crop_mirror_normalize(images, name="PIXELS", dtype=types.FLOAT, output_layout="CHW",
                                    mean=[0.485 * 255, 0.456 * 255, 0.406 * 255], std=[0.229 * 255, 0.224 * 255, 0.225 * 255])
