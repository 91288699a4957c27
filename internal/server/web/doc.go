// Package web serves the dashboard and its JSON API. It is mounted under /ui/ of the HTTP port. Every address below
// is relative to the mount point, so the dashboard works behind a path prefix.
//
// Reads are open. Changes need the header "Authorization: Bearer TOKEN" with the dashboard's token; a server
// without a token refuses them with 403. Where restrictions protect categories of the API, the same header and
// value open the same data here: traces need "trace", models "statistics" and "metadata", graphs "model-config",
// inference "inference", loading "model-repository".
//
// Failures are {"error": TEXT} with the status of their code. Durations and offsets are nanoseconds and end in _ns.
// Times since 1970 are microseconds and end in _us. Rates are per second. The types are those of package inspect,
// which documents their fields.
//
//	GET api/server              ServerView
//	GET api/session             {"token": BOOL, "admitted": BOOL}: the server has a token; the request sent it
//	GET api/models              {"models": [ModelView]}
//	GET api/graph/MODEL         GraphView of the preferred version; ?version=N selects another one
//	GET api/traces              TraceList, newest first; all parameters are optional:
//	                            ?request= ?trace= ?model= ?status=ok|failed|CODE ?retained=failed|slow|requested|sampled
//	                            ?min_ns= ?max_ns= ?from_us= ?to_us= ?param=KEY&value=TEXT
//	                            ?limit=50 (at most 1000) ?cursor=(next of the previous page)
//	                            ?after=(newest of an earlier list)
//	GET api/traces/ID           TraceView: spans, events, split, requests of the same batches; 404 once the store has evicted it
//	                            ID may be TRACE-SPAN where several requests share a trace id
//	GET api/traces/ID?as=text   the same as text/plain, as "tutti why" prints it
//	GET api/batches/ID          BatchView
//	GET api/sampling            Sampling
//	PUT api/sampling            changes and returns Sampling; needs the token
//	GET api/captures            CaptureList; a capture stores the tensors of selected requests
//	POST api/captures           starts a capture from a CaptureRule and returns its CaptureView; needs the token
//	GET api/captures/ID         CaptureView
//	DELETE api/captures/ID      ends the capture, keeps its tensors, returns its CaptureView; needs the token
//	GET api/traces/ID/tensors   TensorList of a request whose trace says "captured"; previews need the
//	                            token, and png in them is base64
//	GET api/traces/ID/tensors/N.npy, api/traces/ID/capture.npz   one tensor, or all, as NumPy files;
//	                            need the token
//	GET api/events              server-sent events, one JSON object each:
//	                            "server" ServerView and "models" [ModelView], at once and every second;
//	                            "trace" TraceSummary of traces as they are stored, at most 20 a second
//	POST api/models/MODEL/load      {"config": JSON} replaces config.pbtxt; returns {}; needs the token
//	POST api/models/MODEL/unload    returns {}; needs the token
//
// The kinds in "split", in the order in which a request passes them:
//
//	receive    socket and decode                                node -1
//	scheduler  the server's own overhead                        node of the step, -1 before the first and after the last
//	limit      waiting for max_inflight_requests                node, model
//	queue      waiting behind another batch                     node, model, batch: the one the instance was executing
//	mates      waiting for other requests to join the batch     node, model
//	copies     gather, scatter and device copies                node, model
//	padding    the share of the compute time spent on padding   node, model, batch
//	compute    the model                                        node, model, batch
//	native     a step in this process                           node, model, batch
//	cache      response cache lookup                            node, model
//	encode     encode and socket                                node -1
//
// The pages are in ui/, in TypeScript. "make ui" builds them into dist, which is embedded and committed, so that
// building the server needs no Node. They request only these addresses and the protocol below v2/, by relative
// addresses.
package web
