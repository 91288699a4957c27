"""The clients, each a generator of checks. They are used as their documentation says, with the address of the server."""

import asyncio
import dataclasses
import functools
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import serving

MODEL = "ensemble"  # of embeddings, in the text example
TEXTS = ["The cat sleeps.", "A kitten is asleep.", "The bank raised its rates.", "naïve café ☕", ""]
DOCUMENTS = ["The bank raised its rates.", "A kitten is asleep.", "Bread rises because of yeast."]
QUERY = "The cat sleeps."


@dataclasses.dataclass
class Check:
    """One call of a client, and whether its result is the expected one."""

    what: str
    ok: bool
    detail: str = ""

    def __post_init__(self):
        self.ok = bool(self.ok)


class At:
    """The server, and what its v2 protocol responds."""

    def __init__(self, address):
        self.url = "http://" + address

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=serving.LIMIT) as response:
            return json.load(response)

    def infer(self, model, output, **inputs):
        """The rows of an output for rows of strings."""
        n = len(next(iter(inputs.values())))
        tensors = [{"name": k, "datatype": "BYTES", "shape": [n, 1], "data": v} for k, v in inputs.items()]
        found = self.post(f"/v2/models/{model}/infer", {"inputs": tensors, "outputs": [{"name": output}]})["outputs"][0]
        width = len(found["data"]) // n
        return [found["data"][i * width : (i + 1) * width] for i in range(n)]

    @functools.lru_cache
    def embeddings(self, *texts):
        return [self.infer(MODEL, "embedding", TEXT=[t])[0] for t in texts]

    @functools.lru_cache
    def scores(self, query, *texts):
        return [self.infer("rerank", "score", QUERY=[query], TEXT=[t])[0][0] for t in texts]


def near(what, got, want, limit=1e-5):
    """Compares vectors: those of texts that share a batch differ in their last bits."""
    if len(got) != len(want) or any(len(g) != len(w) for g, w in zip(got, want, strict=True)):
        return Check(what, False, f"{[len(g) for g in got]} elements, expected {[len(w) for w in want]}")
    off = max((abs(a - b) for g, w in zip(got, want, strict=True) for a, b in zip(g, w, strict=True)), default=0)
    return Check(what, off <= limit, f"differs by {off}, expected at most {limit}")


def equal(what, got, want):
    return Check(what, got == want, f"{got!r}, expected {want!r}")


def raises(what, kind, call, *words):
    """Expects an error of a class of the client, whose text has some words."""
    try:
        got = call()
    except kind as e:
        return Check(what, all(w in str(e) for w in words), f"{e}, expected {words}")
    except Exception as e:
        return Check(what, False, f"{type(e).__name__}: {e}, expected {kind.__name__}")
    return Check(what, False, f"{got!r}, expected {kind.__name__}")


def openai(at):
    import openai as sdk

    client = sdk.OpenAI(base_url=at.url + "/v1", api_key="none", max_retries=2)
    want = at.embeddings(*TEXTS)
    for form in (sdk.NOT_GIVEN, "float", "base64"):  # by default the client asks for base64, and decodes it
        got = client.embeddings.create(model=MODEL, input=TEXTS[:4], encoding_format=form)
        if form == "base64":
            yield equal("base64", {type(d.embedding) for d in got.data}, {str})
            continue
        yield near(f"embeddings, {form}", [d.embedding for d in got.data], want[:4])
        yield equal("indices", [d.index for d in got.data], [0, 1, 2, 3])
    yield equal("usage", got.usage.prompt_tokens > 0, True)
    yield near("one text", [client.embeddings.create(model=MODEL, input=TEXTS[0]).data[0].embedding], want[:1])
    many = [TEXTS[i % 3] for i in range(300)]
    yield near("300 texts", [d.embedding for d in client.embeddings.create(model=MODEL, input=many).data], [want[i % 3] for i in range(300)])
    with open(serving.ROOT / "examples/ensembles/text/expected.json") as f:
        first = json.load(f)["requests"][0]
    text, expected = first["inputs"][0]["data"][0], first["outputs"][0]["data"]
    yield near("expected.json", [client.embeddings.create(model=MODEL, input=text).data[0].embedding], [expected], 1e-3)
    yield equal("models", MODEL in [m.id for m in client.models.list()], True)
    yield equal("a model", client.models.retrieve(MODEL).id, MODEL)
    yield raises("an unknown model", sdk.NotFoundError, lambda: client.embeddings.create(model="nope", input="a"), "nope")
    yield raises("retrieve an unknown model", sdk.NotFoundError, lambda: client.models.retrieve("nope"), "nope")
    yield raises("no texts", sdk.BadRequestError, lambda: client.embeddings.create(model=MODEL, input=[]), "input")
    yield raises("token ids", sdk.BadRequestError, lambda: client.embeddings.create(model=MODEL, input=[[1, 2]]), "input")
    yield raises("other dimensions", sdk.BadRequestError, lambda: client.embeddings.create(model=MODEL, input="a", dimensions=7), "dimensions")
    yield raises("too long a text", sdk.BadRequestError, lambda: client.embeddings.create(model=MODEL, input="word " * 3000), "256")
    done = client.completions.create(model="talk", prompt="one two three")
    yield equal("completion", done.choices[0].text, "one two three")
    parts = list(client.completions.create(model="talk", prompt="one two three", stream=True, stream_options={"include_usage": True}))
    yield equal("streamed", "".join(c.text for p in parts for c in p.choices), "one two three")
    yield equal("parts", len([p for p in parts if p.choices and p.choices[0].text]), 3)
    yield equal("usage of a stream", parts[-1].usage is not None and parts[-1].usage.completion_tokens, 3)
    yield from asyncio.run(openai_async(sdk, at, want))


async def openai_async(sdk, at, want):
    async with sdk.AsyncOpenAI(base_url=at.url + "/v1", api_key="none") as client:
        got = await asyncio.gather(*(client.embeddings.create(model=MODEL, input=t) for t in TEXTS[:3] * 4))
        return [near("12 at once", [g.data[0].embedding for g in got], want[:3] * 4)]


def openai_retries(at):
    """Overload as the client sees it: it sends a request again that the server calls retryable."""
    import openai as sdk

    client = sdk.OpenAI(base_url=at.url + "/v1", api_key="none", max_retries=1)
    seen = []
    client._client.event_hooks["response"].append(lambda r: seen.append(r.status_code))
    late = {"tutti-timeout-ms": "0.000001"}
    yield raises("a deadline that cannot be met", sdk.InternalServerError, lambda: client.embeddings.create(model=MODEL, input="a", extra_headers=late), "503")
    yield equal("sent twice", seen, [503, 503])
    seen.clear()
    yield raises("a wrong request", sdk.BadRequestError, lambda: client.embeddings.create(model=MODEL, input=[]))
    yield equal("sent once", seen, [400])


def langchain_openai(at):
    import openai as sdk
    from langchain_openai import OpenAIEmbeddings

    want = at.embeddings(*TEXTS)
    plain = OpenAIEmbeddings(base_url=at.url + "/v1", api_key="none", model=MODEL, check_embedding_ctx_length=False)
    yield near("documents", plain.embed_documents(TEXTS[:4]), want[:4])
    yield near("query", [plain.embed_query(TEXTS[0])], want[:1])
    yield near("chunks", plain.embed_documents([TEXTS[i % 3] for i in range(20)], chunk_size=7), [want[i % 3] for i in range(20)])
    yield near("async", asyncio.run(plain.aembed_documents(TEXTS[:2])), want[:2])
    # By default it sends the ids of OpenAI's tokenizer, which are no texts of this model: the error says what to do.
    import tiktoken.model
    import tiktoken.registry

    ranks = {bytes([i]): i for i in range(256)}  # the file of the real encoding is on the internet
    tiktoken.registry._find_constructors()
    tiktoken.registry.ENCODING_CONSTRUCTORS["cl100k_base"] = lambda: {
        "name": "cl100k_base", "pat_str": r".", "mergeable_ranks": ranks, "special_tokens": {},
    }  # fmt: skip
    ids = OpenAIEmbeddings(base_url=at.url + "/v1", api_key="none", model=MODEL)
    yield raises("token ids", sdk.BadRequestError, lambda: ids.embed_documents(TEXTS[:2]), "token")


def cohere(at):
    import cohere as sdk

    want = sorted(enumerate(at.scores(QUERY, *DOCUMENTS)), key=lambda s: -s[1])
    for kind in (sdk.ClientV2, sdk.Client):
        client = kind(base_url=at.url, api_key="none")
        got = client.rerank(model="rerank", query=QUERY, documents=DOCUMENTS)
        name = kind.__name__
        yield equal(f"{name}: order", [r.index for r in got.results], [i for i, _ in want])
        yield near(f"{name}: scores", [[r.relevance_score for r in got.results]], [[s for _, s in want]])
        got = client.rerank(model="rerank", query=QUERY, documents=DOCUMENTS, top_n=1)
        yield equal(f"{name}: the best", [r.index for r in got.results], [want[0][0]])
        yield raises(f"{name}: an unknown model", sdk.NotFoundError, lambda c=client: c.rerank(model="nope", query=QUERY, documents=DOCUMENTS), "nope")
        yield raises(f"{name}: no documents", sdk.BadRequestError, lambda c=client: c.rerank(model="rerank", query=QUERY, documents=[]), "documents")


def chromadb(at):
    """A vector database with its client of Text Embeddings Inference."""
    import chromadb as sdk
    from chromadb.utils.embedding_functions import HuggingFaceEmbeddingServer

    embed = HuggingFaceEmbeddingServer(url=at.url + "/embed")
    yield near("embed", [list(map(float, v)) for v in embed(TEXTS[:4])], at.embeddings(*TEXTS[:4]))
    found = sdk.EphemeralClient().create_collection("texts", embedding_function=embed)
    found.add(ids=["rates", "kitten", "bread"], documents=DOCUMENTS)
    yield equal("query", found.query(query_texts=[QUERY], n_results=1)["ids"], [["kitten"]])


def haystack(at):
    from haystack import Document
    from haystack.components.embedders import OpenAITextEmbedder
    from haystack.utils import Secret

    like = OpenAITextEmbedder(api_base_url=at.url + "/v1", api_key=Secret.from_token("none"), model=MODEL)
    yield near("text", [like.run(TEXTS[0])["embedding"]], at.embeddings(TEXTS[0]))
    from haystack.components.embedders import OpenAIDocumentEmbedder

    some = OpenAIDocumentEmbedder(api_base_url=at.url + "/v1", api_key=Secret.from_token("none"), model=MODEL, progress_bar=False)
    yield near("documents", [d.embedding for d in some.run([Document(content=t) for t in TEXTS[:4]])["documents"]], at.embeddings(*TEXTS[:4]))


def haystack_tei(at):
    from haystack import Document
    from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPIDocumentEmbedder, HuggingFaceAPITextEmbedder
    from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

    want = at.embeddings(*TEXTS)
    one = HuggingFaceAPITextEmbedder("text_embeddings_inference", {"url": at.url + "/embed"}, token=None)
    yield near("text", [one.run(TEXTS[0])["embedding"]], want[:1])
    some = HuggingFaceAPIDocumentEmbedder("text_embeddings_inference", {"url": at.url + "/embed"}, token=None, progress_bar=False)
    yield near("documents", [d.embedding for d in some.run([Document(content=t) for t in TEXTS[:4]])["documents"]], want[:4])
    ranker = HuggingFaceTEIRanker(url=at.url, token=None, top_k=2)
    best = sorted(range(3), key=lambda i: -at.scores(QUERY, *DOCUMENTS)[i])
    found = ranker.run(query=QUERY, documents=[Document(content=t) for t in DOCUMENTS])["documents"]
    yield equal("ranker", [d.content for d in found], [DOCUMENTS[i] for i in best[:2]])


def huggingface_hub(at):
    """The client that the pages of Text Embeddings Inference name."""
    from huggingface_hub import InferenceClient
    from huggingface_hub.errors import HfHubHTTPError

    client = InferenceClient()
    got = client.feature_extraction(TEXTS[0], model=at.url + "/embed")
    yield near("text", [list(map(float, row)) for row in got], at.embeddings(TEXTS[0]))
    long = "word " * 3000
    yield raises("too long a text", HfHubHTTPError, lambda: client.feature_extraction(long, model=at.url + "/embed", truncate=False), "413")
    got = client.feature_extraction(long, model=at.url + "/embed", truncate=True)
    yield near("a text that is cut", [list(map(float, row)) for row in got], at.embeddings(long))


def mcp(at):
    return asyncio.run(mcp_session(at))


async def mcp_session(at):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    done = []
    async with streamable_http_client(at.url + "/mcp") as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        tools = {t.name: t for t in (await session.list_tools()).tools}
        done.append(equal("tools", sorted(tools), ["search", "talk"]))
        text = "Why does dough get bigger?"
        got = await session.call_tool("search", {"TEXT": text})  # which validates it against the schema
        want = at.post("/v2/models/search/generate", {"TEXT": text})
        content = result_of(got)
        done.append(equal("search", content["found"], want["found"]))
        done.append(near("scores", [content["scores"]], [want["scores"]]))
        got = await session.call_tool("talk", {"TEXT": "one two three"})
        done.append(equal("streamed", "".join(r["OUT"] for r in result_of(got)["responses"]), "one two three"))
        got = await session.call_tool("search", {"TEXT": 5})
        wrong = getattr(got, "is_error", None) or getattr(got, "isError", None)
        done.append(Check("a wrong argument", wrong and "expected a string" in got.content[0].text, str(got)))
        try:
            await session.call_tool("nope", {})
            done.append(Check("an unknown tool", False, "no error"))
        except Exception as e:
            done.append(Check("an unknown tool", "there is no tool 'nope'" in str(e), str(e)))
    return done


def result_of(result):
    return getattr(result, "structured_content", None) or getattr(result, "structuredContent", None) or {}



def aiperf(at):
    """NVIDIA's load generator, with the endpoints of embeddings and rankings: short runs."""
    for kind, model, path in (("embeddings", MODEL, "/v1/embeddings"), ("cohere_rankings", "rerank", "/v2/rerank"), ("hf_tei_rankings", "rerank", "/rerank")):
        report = aiperf_run(at, kind, model, path)
        yield equal(f"{kind}: requests", report.get("request_count", {}).get("avg"), 20)
        yield equal(f"{kind}: errors", report.get("error_request_count"), None)


def aiperf_run(at, kind, model, path):
    with tempfile.TemporaryDirectory(prefix="tutti-aiperf-") as folder:
        words = tokenizer(pathlib.Path(folder))
        done = subprocess.run(
            [sys.executable, "-m", "aiperf", "profile", "--model", model, "--url", at.url, "--endpoint-type", kind, "--endpoint", path,
             "--request-count", "20", "--concurrency", "4", "--synthetic-input-tokens-mean", "20", "--tokenizer", words, "--artifact-dir", folder, "--ui", "none"],
            cwd=folder, capture_output=True, text=True, timeout=serving.LIMIT, check=False, env=os.environ | {"HOME": folder, "HF_HUB_CACHE": folder + "/hub", "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        found = list(pathlib.Path(folder).rglob("profile_export_aiperf.json"))
        if done.returncode != 0 or not found:
            raise RuntimeError(f"status {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
        return json.loads(found[0].read_text())


def tokenizer(folder):
    """Lays the example's tokenizer out as one that was fetched before: AIPerf measures the texts that it makes with it."""
    at = folder / "hub/models--example--words"
    files = at / "snapshots" / ("0" * 40)
    files.mkdir(parents=True)
    (at / "refs").mkdir()
    (at / "refs/main").write_text("0" * 40)
    shutil.copy(serving.ROOT / "examples/ensembles/text/tokenizer/1/tokenizer.json", files)
    (files / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (files / "config.json").write_text('{"model_type": "bert"}')
    return "example/words"


def infinity(at):
    """The load test of Infinity's repository (make benchmark_embed): ab with its arguments, and its body if INFINITY is a checkout."""
    with tempfile.TemporaryDirectory(prefix="tutti-infinity-") as folder:
        body = pathlib.Path(os.environ.get("INFINITY", folder)) / "libs/infinity_emb/tests/data/benchmark/benchmark_embed.json"
        if "INFINITY" not in os.environ:
            body.parent.mkdir(parents=True)
            body.write_text(json.dumps({"input": long_texts(64), "model": "michaelfeil/bge-small-en-v1.5"}))
        packages = pathlib.Path(importlib.metadata.distribution("openai").locate_file("."))
        done = subprocess.run(
            [packages / "ab/bin/ab", "-n", "10", "-c", "10", "-l", "-s", "480", "-T", "application/json", "-p", body, at.url + "/embeddings"],
            capture_output=True, text=True, timeout=600, check=False, env=os.environ | {"LD_LIBRARY_PATH": str(packages / "ab/lib")},
        )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"status {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    found = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    for what, want in (("Complete requests", "10"), ("Failed requests", "0"), ("Non-2xx responses", None)):
        yield equal(what, found[what].strip() if what in found else None, want)


def long_texts(n):
    """Texts of more tokens than the model reads, as those of Infinity's load test are; the same in each run."""
    words = (serving.ROOT / "LICENSE").read_text().split()
    return [" ".join(words[(i * 37 + k * 11) % len(words)] for k in range(500)) for i in range(n)]


# By the package, and what is checked.
LIST = {
    "openai": openai, "openai retries": openai_retries, "langchain-openai": langchain_openai, "cohere": cohere, "chromadb": chromadb,
    "haystack-ai": haystack, "huggingface-api-haystack": haystack_tei, "huggingface_hub": huggingface_hub, "mcp": mcp, "aiperf": aiperf,
    "infinity load test": infinity,
}  # fmt: skip
