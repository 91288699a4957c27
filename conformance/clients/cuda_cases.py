"""Tensors in the memory of a GPU, with tritonclient.utils.cuda_shared_memory, against a server on the driver of the tests."""

import contextlib

import numpy as np

from harness import case, equal, has, http_module, refused, same


@contextlib.contextmanager
def memory(f, name, size, device=0):
    """A region of device memory, registered by its name."""
    import tritonclient.utils.cuda_shared_memory as cuda

    handle = cuda.create_shared_memory_region(name, size, device)
    try:
        f.register_cuda_shared_memory(name, cuda.get_raw_handle(handle), device, size)
        yield cuda, handle
    finally:
        f.unregister_cuda_shared_memory(name)
        cuda.destroy_shared_memory_region(handle)


def shared_input(f, name, data, region, offset=0):
    t = f.module.InferInput(name, list(data.shape), http_module.np_to_triton_dtype(data.dtype))
    t.set_shared_memory(region, data.nbytes, offset=offset)
    return t


# shows: shm.cuda
@case(variant="cuda")
def cuda_shared_memory(f):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for device in (0, 1):
        with memory(f, "in", 64, device) as (cuda, source), memory(f, "out", 512) as (_, target):
            cuda.set_shared_memory_region(source, [np.zeros(4, np.float32), data])
            for model in ("gpu_fp32", "id_fp32"):  # at GPU 0 and on the host
                cuda.set_shared_memory_region(target, [np.zeros(128, np.float32)])
                out = f.output("OUTPUT0")
                out.set_shared_memory("out", 24, offset=256)
                answer = f.infer(model, [shared_input(f, "INPUT0", data, "in", 16)], outputs=[out])
                output = answer.get_output("OUTPUT0")
                equal(list(output["shape"] if f.http else output.shape), [2, 3])
                got = cuda.get_contents_as_numpy(target, np.float32, [128])
                same(got[64:70].reshape(2, 3), data, (device, model))
                out.unset_shared_memory()
                same(f.infer(model, [shared_input(f, "INPUT0", data, "in", 16)], outputs=[out]).as_numpy("OUTPUT0"), data)


# shows: shm.cuda
@case(variant="cuda")
def cuda_shared_memory_of_strings(f):
    words = np.array([[b"one", b"", b"three"]], dtype=np.object_)
    packed = http_module.serialize_byte_tensor(words)
    size = len(packed.item())
    with memory(f, "words", size) as (cuda, source), memory(f, "copy", size) as (_, target):
        cuda.set_shared_memory_region(source, [packed])
        t = f.module.InferInput("INPUT0", [1, 3], "BYTES")
        t.set_shared_memory("words", size)
        out = f.output("OUTPUT0")
        out.set_shared_memory("copy", size)
        f.infer("id_bytes", [t], outputs=[out])
        equal(list(cuda.get_contents_as_numpy(target, np.object_, [1, 3])[0]), list(words[0]))


# shows: shm.cuda
@case(variant="cuda")
def cuda_shared_memory_from_dlpack(f):
    class Host(np.ndarray):  # numpy's own __dlpack__ takes no stream
        def __dlpack__(self, stream=None):
            return np.asarray(self).__dlpack__()

    data = np.arange(8, dtype=np.int32).reshape(2, 4)
    with memory(f, "in", 32) as (cuda, source):
        cuda.set_shared_memory_region_from_dlpack(source, [data.view(Host)])
        same(f.infer("id_int32", [shared_input(f, "INPUT0", data, "in")]).as_numpy("OUTPUT0"), data)


# shows: shm.cuda shm.errors
@case(variant="cuda")
def cuda_shared_memory_mistakes(f):
    data = np.zeros((1, 4), np.float32)
    with memory(f, "region", 64) as (cuda, handle):
        raw = cuda.get_raw_handle(handle)
        status = f.get_cuda_shared_memory_status("region")
        row = status[0] if f.http else status.regions["region"]
        equal((int(row["device_id"]), int(row["byte_size"])) if f.http else (row.device_id, row.byte_size), (0, 64))
        text = "failed to register shared memory region 'other': invalid args"
        refused(f, lambda: f.register_cuda_shared_memory("other", raw, 0, 65), text)
        refused(f, lambda: f.register_cuda_shared_memory("other", raw, 2, 64), text)
        refused(f, lambda: f.register_cuda_shared_memory("region", raw, 0, 64), "shared memory region 'region' already in manager", grpc="ALREADY_EXISTS")
        out = f.output("OUTPUT0")
        out.set_shared_memory("region", 12)
        text = "shared memory size specified with the request for output 'OUTPUT0' (12 bytes) should be at least 16 bytes to hold the results"
        refused(f, lambda: f.infer("gpu_fp32", [shared_input(f, "INPUT0", data, "region")], outputs=[out]), text, "500", "INTERNAL")
        text = "Invalid offset + byte size for shared memory region: 'region'"
        refused(f, lambda: f.infer("gpu_fp32", [shared_input(f, "INPUT0", data, "region", 52)]), text)
    text = "Unable to find cuda shared memory region: 'region'"
    e = refused(f, lambda: f.get_cuda_shared_memory_status("region"), text, "404", "NOT_FOUND")
    has(e.message(), "region")
