// Package python is the python backend: it serves models written as model.py with Triton's triton_python_backend_utils.
//
//	factory.go      the factory, the backend, its settings, and which Python runs
//	model.go        loading, auto_complete_config, and load errors; environment.go: EXECUTION_ENV_PATH
//	instance.go     the lifecycle of an instance; execute.go: a batch and its outputs; execution.go: executions in flight
//	worker.go       a worker process; process.go: how processes start, print and exit; forkserver.go: what forks workers
//	link.go         packets over a socket; codec.go: bodies of packets; region.go: shared memory
//	gpu.go          GPU memory shared with a worker; gpuinstance.go: inputs and outputs there; response.go: responses of calls
//	side.go         the side channel; bls.go: inference calls, and those that can never complete;
//	                control.go: loading of models, and custom metrics
//
// # Processes
//
// Every instance has a worker process. It has a process group, and its name is "py:" and the model's name. It is forked by a
// fork server, or, when there is none, spawned as `python3 -u worker.py py:MODEL` in the environment of the server. The
// folder of worker.py contains triton_python_backend_utils.py and is first in sys.path.
//
// A worker has two connected sockets (AF_UNIX, SOCK_SEQPACKET). Descriptor 3, the command channel, carries the server's
// commands, one at a time, and their results. Descriptor 4, the side channel, carries packets that any thread of the worker
// sends on its own initiative, and the replies. A worker exits when either socket is closed; a thread reads the side channel,
// so it notices even while the model computes. Standard output and standard error are logged line by line.
//
// A process that the model forks (multiprocessing, os.fork) has no command channel. When it first needs the server, it creates
// a pair of sockets and passes one to the server with JOIN: its own side channel, on which it may send everything that the
// worker may. It exits when that channel is closed. When a worker exits, the rest of its process group is killed.
//
// # Crashes
//
// A worker that exits unexpectedly is logged with its last lines of standard error, and its instance is not ready. The next
// request starts a new worker and is served by it; the start goes on when that client leaves, and serves those that follow. Without a
// request, a new worker starts after 5 seconds; the delay doubles with each crash until a request succeeds, to at most a minute. From
// the second crash on, a start that a request begins has a delay, too (backends/crash).
//
// # Fork servers
//
// A fork server, `python3 -u worker.py forkserver`, is a process that has imported the modules of every worker, above all
// numpy, and no model. (Python's multiprocessing uses the same word for the same idea.) Each interpreter has one per
// environment while models use it. A fork takes about 1 ms where a start takes 100 ms, and workers share the memory of the
// imported modules until they write to it. A new worker gets a new random seed and none of the fork server's descriptors.
// Model files are read after the fork.
//
// A fork server reports itself as unsupported when a thread other than the main one survives a test fork, or when the system
// has no pidfd_open. (OpenBLAS stops its threads before a fork, and starts them again on demand.) When numpy is replaced on
// disk, the fork server refuses to fork, and a new one is started. When a fork server exits, its workers keep running, and
// their exit status cannot be known. A fork server exits when its socket is closed; if the server has exited, it gives the workers
// 2 seconds to exit, and then kills their process groups: a model in C code may hold the interpreter's lock, so that its worker cannot
// notice. The kernel kills spawned workers in that case (PR_SET_PDEATHSIG). Where forking is unsupported, and where
// the parameter START_METHOD of the model or the setting start-method of the backend is "spawn", every worker is spawned.
//
// Descriptor 3 of a fork server carries packets of the format below:
//
//	64 FORK    the name of the process; four files: command channel, side channel, standard output and standard error
//	80 HELLO   the first packet: JSON {"python": version, "numpy": version, "fault": why forking is unsupported, or ""}
//	81 FORKED  <i> process id; the result of FORK. The other result is FAILED, see below
//	82 EXITED  <i> status of waitpid; id of the FORK
//
// # Packets
//
// Numbers are little endian. A packet has a head of 16 bytes, <HHIQ>: kind, flags, id, length of the body; then the body, at
// most 61440 bytes. A longer body is in a file (memfd, sealed against shrinking) that is passed with the head (SCM_RIGHTS);
// the flags then have InFile. A result or reply has the id of its command or request. Flags:
//
//	1 InFile      the body is in the file passed with the packet
//	2 Final       REPLY: the last one; SEND: the last response of the request
//	4 True        REPLY, DONE: the result is true
//	8 Retained    DONE of EXECUTE: the worker still uses the memory of the inputs (FAILED implies it)
//	16 NeedsReply the sender waits for a REPLY
//	32 InPlace    DONE of EXECUTE: the outputs are in the region of the inputs
//	64 GPU        DONE, FAILED of EXECUTE: the worker still uses GPU regions of the inputs, and gives each back by GPUGIVE; REPLY: the
//	              response has tensors in GPU regions, which the worker gives back
//
// Commands. The result of each is DONE, or FAILED with a code (1 byte, see Codes) and a text in UTF-8. With 128 added
// to the code, <H> number of parameters and the parameters of an error stand before the text:
//
//	1 START     JSON {"file": of model.py, "model", "version", "paths": for sys.path}; DONE: JSON {"python": version,
//	            "numpy": version, "complete": whether the model has auto_complete_config, "ready": whether it has is_ready}
//	2 COMPLETE  JSON {"config": ModelConfig}: calls auto_complete_config; DONE: JSON {"config": the completed one}
//	3 INIT      JSON {"args": of initialize, strings by name, "inputs": [[name, data type, for example "FP32"]...], "outputs":
//	            likewise, "decoupled": bool, "growth": bytes, "driver": path of the CUDA driver's library, "gpus": [[number,
//	            UUID]...]}; DONE: empty. Indices below refer to these inputs and outputs
//	6 EXECUTE   see below
//	8 FINALIZE  DONE; the worker then exits
//
// Four commands have no result. The last two also occur on the side channel, from the server:
//
//	4 REGION    <IIQ> id, use (0 inputs, 1 outputs), size: the passed file is a new region of shared memory
//	5 DROP      <I> id: the region is no longer used. Arrays that still view it keep it mapped
//	9 GPUREGION <IIQ64s> id, number of the GPU, size, IPC handle: a GPU region, before the first packet that uses it
//	10 GPUDROP  the id of a GPU region that is no longer used: the worker unmaps it and answers with GPUDROPPED
//
// The results are 16 DONE and 17 FAILED. Side channel, from the worker:
//
//	32 LOG      level (1 byte: 0 info, 1 warning, 2 error, 3 verbose, 4 an exception that no request reports), text
//	33 CALL     an inference call (BLS): a request as below with a longer extra part. Each REPLY holds a response as below,
//	            the last one with flag Final; a decoupled model sends any number, and the last may have no outputs and state 2
//	34 SEND     <II> id of the EXECUTE, index of the request; a response of a response sender. With NeedsReply the REPLY
//	            comes when the client accepts more, and is an error when no client waits; without Final more may follow
//	35 CANCELLED <II> id of the EXECUTE, index of the request; REPLY with flag True when the request is cancelled
//	36 METRIC   JSON {"do": "family", "id": of the family object, "family": its name, "kind": "counter|gauge|histogram", "help"};
//	            {"do": "metric", "id", "family", "labels": {name: value}, "buckets": [...]}; {"do": "forget", "id", "family"}: removes
//	            the family and its metrics; {"do": "increment|set|observe|value", "id", "family", "labels", "value"}; REPLY on
//	            request: JSON {"value": number} or an error
//	37 MODEL    JSON {"do": "load", "model", "config": JSON or "", "files": {path: base64}}, {"do": "unload", "model",
//	            "dependents": bool}, {"do": "ready", "model", "version": ""}; REPLY, with flag True when ready
//	38 ABANDON  the id of a CALL whose further REPLYs are not needed
//	39 CANCEL   the id of a CALL whose model should see that it is cancelled; its responses are still needed
//	40 JOIN     with a socket: the side channel of a process that the sender has forked
//	41 GPUBORROW <IQ> number of a GPU, bytes; REPLY: an error, or a response without outputs, then <I> id of a GPU region, for tensors
//	            that the worker will send
//	42 GPUGIVE  the id of a GPU region that the worker no longer uses
//	43 GPUDROPPED the id of a GPU region that the worker has unmapped
//	16 DONE, 17 FAILED  results of READY; DONE has flag True when the model is ready
//
// and from the server:
//
//	 7 READY    call is_ready of the model, in a separate thread
//	48 REPLY    a response as below, unless stated otherwise
//
// # Requests and responses
//
// EXECUTE has <IIIIQQ>: number of requests, region of the inputs, region for the outputs, for how many microseconds the worker executes the
// requests one after the other, each as a batch of its own (0: as one batch), used bytes of the first, size of
// the second. The requests follow. A request is <QQQIHHII>, 40 bytes: correlation id, priority, timeout in microseconds, flags
// (1 sequence start, 2 sequence end, 4 the correlation id is a string, in extra, 8 in a CALL: any number of responses is
// expected), number of inputs, in a CALL where its outputs shall be (0 anywhere, 1 on the host, 2 + N on GPU N), bytes of extra, in a CALL the
// microseconds since the model made it; then the inputs; then
// extra, padded with zeros to a multiple of 8.
//
// A tensor is <HBBIQQ>, 24 bytes: index (into the inputs or outputs of INIT; 65535 when extra has its name), data type (the
// number of DataType in config.pbtxt: 1 BOOL ... 11 FP32, 13 BYTES, 14 BF16), rank, id of the GPU region with it or 0 (then the
// offset is relative to that region, and a multiple of 256), offset, size; then its dimensions, <q>
// each. Offsets are multiples of the element size. They are relative to the start of the region in EXECUTE and its DONE, and
// to the first byte of the request or response elsewhere. Each BYTES element follows its length in 4 bytes.
//
// Extra is empty when all its fields have their defaults. A string is <I> and UTF-8 bytes; a parameter is a string, a kind
// (1 byte: 0 bool, 1 int64, 2 uint64, 3 double, 4 string) and 8 bytes of value, or a string. Extra of a request: id,
// correlation id (a string), <H> number of parameters, the parameters. In an EXECUTE it continues: <H> number of requested
// outputs (0 for all), their names, the trace context (JSON, or empty). In a CALL it is never empty, and continues: model
// (string), version <q> (-1 for any), the names of the inputs, <H> number of requested outputs (0 for all), their names.
//
// DONE of an EXECUTE has <IIQ>: number of responses, the nanoseconds that the worker took (at most 2^32-1), size of the outputs' region,
// which the worker may have grown
// (ftruncate; never smaller); then one response for each request. A response is <BBHI>, 8 bytes: state (0 success, 1 error,
// 2 none here: a response sender sends it, or the request has none, 3 reschedule, and where requests are executed one after the other 4 an
// exception of execute, 5 not executed, as are all after it), code, number of outputs, bytes of extra;
// then the outputs; then extra, padded: error text (string), <H> number of parameters, parameters, and the names of outputs
// with index 65535.
//
// The outputs of an EXECUTE are in the region named for them, or with flag InPlace in that of the inputs, each at a multiple of
// 64, without overlaps unless they are parts of the inputs. The worker writes to that region during the execution only; the server reads
// it after DONE.
//
// An EXECUTE of a decoupled model ends with its DONE; requests in state 2 stay open until a SEND with flag Final. The worker
// sends one for a response sender that is garbage collected without it.
//
// # Codes
//
// 0 unknown, 1 internal, 2 not found, 3 invalid argument, 4 unavailable, 5 unsupported, 6 already exists, 7 cancelled, 8 resource exhausted.
//
// The parameters of an error are what it says besides: the strings reason and step, and the integers retry_after_ns and
// predicted_finish_ns. Each may be absent.
//
// # Memory
//
// Inputs are copied once, to the instance's input region, where the worker's arrays view them. The model may keep them: a
// worker that still refers to an input after an execution reports Retained, and gets a new region for the next execution.
// Outputs are copied once by the worker, from its arrays to an output region, or to the input region when nothing refers to
// the inputs any more, because that memory is in the processor's cache already. Outputs that are arrays in the memory of large inputs are not
// copied if the model does not keep them, for example np.add(x, 1, out=x). Large outputs become tensors in that memory
// without another copy; small ones are copied out.
//
// # GPU memory
//
// A tensor at a GPU reaches the model there if the parameter FORCE_CPU_ONLY_INPUT_TENSORS is "no"; otherwise the scheduler copies it
// to the host before. A tensor that the model makes from a DLPack capsule on a GPU always stays there. Neither needs a host copy.
// The worker opens the CUDA driver, and makes a context, when the address of such a tensor is first needed, and not before.
//
// Both directions go through GPU regions: memory that the server allocates outside its pool (cuMemAlloc) and the worker maps once, by
// IPC handle. Inputs are copied into a region on the instance's stream; outputs, and inputs of calls, are copied by the worker into
// a region that it borrows, and become tensors of the server there without a further copy. These copies stay in the memory of the
// GPU; the ledger counts them with the reason "process". A region is lent, or has tensors, or is free; it goes through these states
// as often as needed, and its handle and mapping are made once. A worker keeps at most 4 free ones. The alternatives were:
//
//   - Sharing the pool itself (cuMemPoolExportToShareableHandle) saves the copy of inputs. But NVIDIA's programming guide says that
//     such a pool does not give memory back to the system: trimming and the release threshold have no effect. And memory must not be
//     freed while another process has it mapped, so every release in the server would wait for a model that keeps a tensor.
//   - Handles of the worker's own memory would save the copy of outputs. But its end would take tensors away that other steps
//     read, and memory of cudaMallocAsync or of expandable segments has no such handle.
//
// The server frees a region only when the worker has unmapped it or has exited, as CUDA demands. When a worker dies, what was lent to
// it is free; tensors that it has sent stay valid.
//
// Before a packet names a region, its content is complete: the server waits for its stream, and the worker for its contexts, in which
// the model may have used any stream. So neither process ever waits for work of the other on the GPU, and the death of one cannot
// stop the other. IPC events would let the worker start while the last step still computes, but a capsule without a stream,
// which most models use (to_dlpack), needs complete content. A region is given back after the worker's contexts have finished with it.
//
// A GPU has the server's number in packets. The worker finds it by its UUID, because the model may set CUDA_VISIBLE_DEVICES. After
// an error that makes a context unusable, for example an illegal address, the worker exits, and a new one replaces it. A process
// that the model has forked cannot use CUDA.
package python
