// Package web is the dashboard and the JSON that it is made of. It is mounted under /ui/ of the
// HTTP port; every address here is relative to that, so it works behind a path prefix.
//
// Reading is open; what changes something needs the header "Authorization: Bearer TOKEN"
// with the dashboard's token, and is refused (403) when the server has none. Where
// restrictions protect categories of the API, the same header and value open the same
// data here: traces need "trace", models "statistics" and "metadata", graphs
// "model-config", inference "inference", loading "model-repository".
//
// Failures are {"error": TEXT} with the status of their code. Durations and offsets are
// nanoseconds and end in _ns, moments since 1970 are microseconds and end in _us, rates
// are per second. The types are those of package inspect, which also say what a field
// means.
//
//	GET api/server              ServerView
//	GET api/session             {"token": BOOL, "admitted": BOOL}: there is a token; it was sent
//	GET api/models              {"models": [ModelView]}
//	GET api/graph/MODEL         GraphView; ?version=N for another than the preferred one
//	GET api/traces              TraceList, newest first; all are optional:
//	                            ?request= ?trace= ?model= ?status=ok|failed|CODE ?retained=failed|slow|requested|sampled
//	                            ?min_ns= ?max_ns= ?from_us= ?to_us= ?param=KEY&value=TEXT
//	                            ?limit=50 (at most 1000) ?cursor=(next of the page before)
//	                            ?after=(newest of an earlier list)
//	GET api/traces/ID           TraceView: spans, events, split, batch mates; 404 when it is not stored any more
//	                            ID may be TRACE-SPAN where several requests share a trace id
//	GET api/traces/ID?as=text   the same as text/plain, what "tutti why" prints
//	GET api/batches/ID          BatchView
//	GET api/sampling            Sampling
//	PUT api/sampling            Sampling, which is answered as it is then; needs the token
//	GET api/captures            CaptureList; a capture keeps the tensors of chosen requests
//	POST api/captures           a CaptureRule starts one; answers its CaptureView; needs the token
//	GET api/captures/ID         CaptureView
//	DELETE api/captures/ID      ends it, what it kept stays; answers its CaptureView; needs the token
//	GET api/traces/ID/tensors   TensorList of a request whose trace says "captured"; previews are
//	                            only for who sends the token, png in them is base64
//	GET api/traces/ID/tensors/N.npy, api/traces/ID/capture.npz   one tensor, or all, as files of
//	                            NumPy; need the token
//	GET api/events              server-sent events, one JSON object each:
//	                            "server" ServerView and "models" [ModelView], at once and every second;
//	                            "trace" TraceSummary of traces as they are stored, at most 20 a second
//	POST api/models/MODEL/load      needs the token; {"config": JSON} stands for config.pbtxt; answers {}
//	POST api/models/MODEL/unload    needs the token; answers {}
//
// The kinds in "split" are, in the order of a request's way:
//
//	receive    socket and decode                      node -1
//	scheduler  what the server itself takes           node of the step, -1 before and after all
//	limit      waiting for max_inflight_requests      node, model
//	queue      waiting behind a batch                 node, model, batch: the one the instance was busy with
//	mates      waiting for others to join the batch   node, model
//	copies     gathering, scattering, moving          node, model
//	padding    the share of computing what was added  node, model, batch
//	compute    the model                              node, model, batch
//	native     a step in this process                 node, model, batch
//	cache      looking up an answer that was kept     node, model
//	encode     encode and socket                      node -1
//
// The pages are in ui/, in TypeScript; "make ui" builds them into dist, which is embedded
// and committed, so that building the server takes no Node. They ask for nothing but what
// is here and in the protocol below v2/, by relative addresses.
package web
