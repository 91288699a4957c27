from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.triton import autoserialize


@autoserialize
@pipeline_def(batch_size=256, num_threads=2, device_id=None)
def identity():
    return fn.external_source(device="cpu", name="DALI_INPUT_0")
