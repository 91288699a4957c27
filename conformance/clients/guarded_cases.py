"""Servers with restrictions: TLS with client certificates, restricted APIs, shared memory off."""

import pathlib
import ssl

import numpy as np

from harness import case, equal, refused, region, same, until


def files(f):
    folder = f.args.certificates
    return f"{folder}/ca.pem", f"{folder}/client.pem", f"{folder}/client.key"


def secure(f, certificate=True):
    """A client with TLS; certificate says whether it sends a client certificate."""
    authority, chain, key = files(f)
    if not f.http:
        own = {"certificate_chain": chain, "private_key": key} if certificate else {}
        return f.connect(ssl=True, root_certificates=authority, **own)

    def context():
        c = ssl.create_default_context(cafile=authority)
        if certificate:
            c.load_cert_chain(chain, key)
        return c

    if f.aio:
        return f.connect(ssl=True, ssl_context=context())
    import gevent.ssl

    def green():
        c = gevent.ssl.create_default_context(cafile=authority)
        if certificate:
            c.load_cert_chain(chain, key)
        return c

    return f.connect(ssl=True, ssl_context_factory=green)


# shows: tls
@case(variant="tls")
def an_encrypted_request(f):
    data = np.arange(4, dtype=np.float32).reshape(1, 4)
    with secure(f) as client:
        assert client.is_server_live()
        same(client.infer("raw", [f.input("INPUT0", data)]).as_numpy("OUTPUT0"), data)


# shows: tls.mutual
@case(variant="tls")
def a_client_without_certificate(f):
    try:
        with secure(f, certificate=False) as client:
            live = client.is_server_live()
    except Exception:  # each library has an own one
        return
    assert not live, "the server took a client without a certificate"


# shows: tls
@case(variant="tls")
def a_client_without_tls(f):
    try:
        with f.connect() as client:
            live = client.is_server_live()
    except Exception:
        return
    assert not live, "the server took clear text"


def allowed(f):
    return {"key": "word"} if f.http else {"triton-grpc-protocol-key": "word"}


# shows: restricted
@case(variant="restricted")
def restricted_apis(f):
    data = np.ones((1, 4), np.float32)
    call = lambda **k: f.infer("raw", [f.input("INPUT0", data)], **k)  # noqa: E731
    if f.http:
        text = "This API is restricted, expecting header 'key'"
    else:
        text = "This protocol is restricted, expecting header 'triton-grpc-protocol-key'"
    refused(f, call, text, "403", "UNAVAILABLE")
    refused(f, lambda: call(headers={k: "other" for k in allowed(f)}), text, "403", "UNAVAILABLE")
    same(call(headers=allowed(f)).as_numpy("OUTPUT0"), data)
    refused(f, f.get_model_repository_index, text, "403", "UNAVAILABLE")
    assert f.get_model_repository_index(headers=allowed(f)) is not None
    assert f.is_server_live() and f.get_server_metadata()


# shows: shm.off
@case(variant="restricted")
def regions_are_off_by_default(f):
    text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    with region(64) as (_, key):
        refused(f, lambda: f.register_system_shared_memory("one", key, 64), text, "501", "UNIMPLEMENTED")
        refused(f, lambda: f.unregister_system_shared_memory("one"), text, "501", "UNIMPLEMENTED")
        for status in (f.get_system_shared_memory_status(), f.get_cuda_shared_memory_status()):
            equal(len(getattr(status, "regions", status)), 0)
        t = f.module.InferInput("INPUT0", [1, 4], "FP32")
        t.set_shared_memory("one", 16)
        refused(f, lambda: f.infer("raw", [t], headers=allowed(f)), text, "501", "UNIMPLEMENTED")


# shows: control.none
@case(variant="restricted")
def loading_is_off_by_default(f):
    text = "explicit model load / unload is not allowed if polling is enabled"
    refused(f, lambda: f.load_model("raw", headers=allowed(f)), text, "503", "UNAVAILABLE")
    equal(f.is_model_ready("raw"), True)


def token(f, text):
    """The headers of a token."""
    return {"authorization": f"Bearer {text}"}


# shows: restricted
@case(variant="tokens")
def tokens_of_an_auth_file(f):
    data = np.ones((1, 4), np.float32)
    right, other, wrong = token(f, "user-0123456789abcdef"), token(f, "reader-0123456789abcdef"), token(f, "wrong-0123456789abcdef")
    calls = [
        lambda **k: f.infer("raw", [f.input("INPUT0", data)], **k),
        lambda **k: f.get_server_metadata(**k),
        lambda **k: f.get_model_metadata("raw", **k),
    ]
    for call in calls:
        refused(f, call, "this server needs a token", "401", "UNAUTHENTICATED")
        refused(f, lambda: call(headers=wrong), "the token is not known to this server", "401", "UNAUTHENTICATED")
    same(calls[0](headers=right).as_numpy("OUTPUT0"), data)
    assert f.is_server_live(headers=right) and f.get_server_metadata(headers=right) and f.get_model_metadata("raw", headers=right)
    refused(f, lambda: calls[0](headers=other), "'reader' may not use 'inference'", "403", "PERMISSION_DENIED")
    assert f.get_model_metadata("raw", headers=other)
    refused(f, lambda: f.unload_model("raw", headers=right), "'user' may not use 'model-repository'", "403", "PERMISSION_DENIED")
    refused(f, lambda: f.get_model_repository_index(headers=right), "'user' may not use 'model-repository'", "403", "PERMISSION_DENIED")


# shows: trace.file http.keepalive
@case(variant="tuned")
def old_trace_flags(f):
    data = np.ones((1, 4), np.float32)
    for _ in range(5):
        same(f.infer("raw", [f.input("INPUT0", data)]).as_numpy("OUTPUT0"), data)

    def traced():
        # Each write of the trace has a file of its own, numbered from 0.
        return any("REQUEST_START" in path.read_text() for path in pathlib.Path(f.args.certificates).glob("trace.json*"))

    until(traced, "the trace is written")
