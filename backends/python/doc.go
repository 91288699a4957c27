// Package python is the python backend: it serves models written as model.py with Triton's triton_python_backend_utils.
//
//	python.go    the backend, its settings and the interpreter; environment.go: EXECUTION_ENV_PATH
//	model.go     loading, auto_complete_config; instance.go: executions; revive.go: workers in place of dead ones
//	worker.go    a worker process: start, commands, end; files.go: the Python files it runs
//	nursery.go   the processes that fork workers; process.go: how processes start and end
//	link.go      packets over a socket; region.go: shared memory
//	request.go answer.go  requests and answers as bytes; reader.go: bytes of a worker, checked
//	side.go      what workers ask; call.go: their inferences (BLS); book.go: those that would wait for themselves;
//	             control.go: their models; meters.go: their metrics; ready.go: is_ready
//	output.go    what it prints; failures.go: what it raises
//
// # Processes
//
// Every instance has a worker process of its own, in a process group of its own and named py: and the model: forked by a
// nursery, or started as `python3 -u worker.py py:MODEL` where there is none, in the environment of the server. The folder
// of worker.py holds triton_python_backend_utils.py and is first in sys.path. The worker has two
// connected sockets, AF_UNIX SOCK_SEQPACKET: descriptor 3, the calls, carries the server's commands, one at a time, and
// their answers; descriptor 4, the side, carries what any thread of the worker asks or tells, and the replies to that. A
// worker exits when either socket ends (a thread reading the side notices even while a model computes). Standard output
// and standard error go to the log, line by line.
//
// A process that the model forks (multiprocessing, os.fork) has no calls. When it first needs the server it makes a pair of
// sockets and passes one of them with JOIN: that is its side, over which it may send all that the worker may. It exits when
// the side ends. What is left of a worker's process group when the worker has ended is killed.
//
// # Death
//
// A worker that ends unasked is logged, with its last lines of standard error, and its instance is not ready. The next
// request starts another worker, and is served; without a request one is started after 5 seconds, which double with each
// death before a request is served, to a minute at most.
//
// # Nurseries
//
// A nursery, `python3 -u worker.py nursery`, is a process that has imported what all workers need, numpy above all, and
// nothing of any model; each interpreter has one while models use it, in each environment. It forks in a millisecond what takes 100
// to start, and the workers share the memory of what was imported until they write there. A new worker draws random
// numbers of its own, and has none of the nursery's descriptors. Files of models are read after the fork.
//
// A nursery says it is unfit when more than one thread is left in it at a fork, which no thread but the forking
// one would survive, or when the system has no pidfd_open. OpenBLAS ends its threads before a fork and starts others
// when it needs them. A nursery whose numpy was replaced on the disk forks no more, and another is started. When a
// nursery ends, its workers live on, and how they end is unknown then; it exits when its socket does. Where nothing
// can be forked, every worker is started anew, as it is where the model's parameter START_METHOD or the backend's setting
// start-method says spawn.
//
// Descriptor 3 of a nursery carries packets as below:
//
//	64 FORK    the name of the process; four files: the worker's calls, side, standard output and standard error
//	80 BORN    first of all: JSON {"python": version, "numpy": version, "fault": why it is unfit, or ""}
//	81 FORKED  <i> process; answers FORK. FAILED, as below, says that there is no worker
//	82 ENDED   <i> status as waitpid has it; id of the FORK
//
// # Packets
//
// Numbers are little endian. A packet has 16 bytes, <HHIQ>: kind, flags, id, length of the body; then the body, at most
// 61440 bytes. A longer body lies in a file (memfd, sealed against shrinking) that is passed with the packet (SCM_RIGHTS),
// whose flags then have 1 (InFile), and only the 16 bytes are sent. An answer has the id of what it answers. Flags:
//
//	1 InFile   the body lies in the file passed with the packet
//	2 Final    REPLY: no other follows; SEND: the request's last answer
//	4 Yes      REPLY: true
//	8 Kept     DONE: something of the worker still uses the memory of the inputs (after FAILED it is taken for granted)
//	16 Asks    the worker waits for a REPLY
//	32 Same    DONE of an EXECUTE: the outputs lie in the region of the inputs
//
// Calls, each answered by DONE, or by FAILED whose body is a code (1 byte, see Codes) and a text in UTF-8:
//
//	1 START     JSON {"file": of model.py, "model", "version", "paths": for sys.path}; DONE: JSON {"python": version,
//	            "numpy": version, "complete": whether the model has auto_complete_config, "ready": whether it has is_ready}
//	2 COMPLETE  JSON {"config": ModelConfig}: runs auto_complete_config; DONE: JSON {"config": the completed one}
//	3 INIT      JSON {"args": of initialize, strings by name, "inputs": [[name, data type "FP32"]...], "outputs": likewise,
//	            "decoupled": bool, "growth": bytes}; DONE: empty. The inputs' and outputs' order is that of the indices below
//	6 EXECUTE   below
//	8 FINALIZE  DONE; the worker then exits
//
// and two without an answer:
//
//	4 REGION    <IIQ> id, use (0 inputs, 1 outputs), size: the file passed is a region of shared memory from now on
//	5 DROP      <I> id: the region is not used any more. Arrays that still view it keep it mapped
//
// The answers are 16 DONE and 17 FAILED. Side, from the worker:
//
//	32 LOG      level (1 byte: 0 info, 1 warning, 2 error, 3 verbose, 4 a failure that no request is told), text
//	33 CALL     an inference (BLS): a request as below, its extra continued. REPLYs hold an answer as below each, the last with
//	            flag Final; a decoupled model gives any number, the last of which may have no outputs and state 2
//	34 SEND     <II> id of the EXECUTE, index of the request; an answer: that of a response sender. With Asks, the REPLY comes
//	            when the client takes more, and is an error when nobody does; without flag Final any number may follow
//	35 CANCELLED <II> id of the EXECUTE, index of the request; REPLY with flag Yes when its client has gone
//	36 METRIC   JSON {"do": "family", "id": of the family object, "family": its name, "kind": "counter|gauge|histogram", "help"};
//	            {"do": "metric", "id", "family", "labels": {name: value}, "buckets": [...]}; {"do": "forget", "id", "family"}: the
//	            family and its metrics; {"do": "increment|set|observe|value", "id", "family", "labels", "value"}; REPLY when
//	            asked for: JSON {"value": number} or error
//	37 MODEL    JSON {"do": "load", "model", "config": JSON or "", "files": {path: base64}}, {"do": "unload", "model",
//	            "dependents": bool}, {"do": "ready", "model", "version": ""}; REPLY, with flag Yes where ready
//	38 ABANDON  the id of a CALL whose further REPLYs nobody wants
//	39 CANCEL   the id of a CALL whose model is to see that it is cancelled; what it sends nevertheless is wanted
//	40 JOIN     with a socket: the side of a process that the sender has forked
//	16 DONE, 17 FAILED  answer READY; DONE has flag Yes when the model is ready
//
// and from the server:
//
//	 7 READY    is_ready of the model is to be called, in a thread of its own
//	48 REPLY    an answer as below in the body unless told otherwise
//
// # Requests and answers
//
// EXECUTE has <IIIIQQ>: number of requests, region of the inputs, region for the outputs, 0, bytes used in the first, size
// of the second. The requests follow. A request is <QQQIHHII>, 40 bytes: correlation id, priority, timeout in
// microseconds, flags (1 sequence start, 2 sequence end, 4 the correlation id is a string, in extra, 8 in a CALL: any number of
// responses is expected), number of inputs, 0, bytes of extra, in a CALL the microseconds since the model made it; then the
// inputs; then extra, padded with zeros to a multiple of 8.
//
// A tensor is <HBBIQQ>, 24 bytes: index (its place among the INIT's inputs or outputs; 65535 when it is named in extra),
// data type (numbers of DataType in config.pbtxt: 1 BOOL ... 11 FP32, 13 BYTES, 14 BF16), rank, 0, offset, size; then its
// dimensions, <q> each. Offsets count from the region's start in EXECUTE and its DONE, in all else from the first
// byte of the request or answer; they are multiples of the element's size. BYTES elements have 4 bytes of length before each.
//
// Extra is empty when all it would say is. A string is <I> and UTF-8 bytes; a parameter is a string, a kind (1 byte: 0
// bool, 1 int64, 2 uint64, 3 double, 4 string) and 8 bytes of value, or a string. Extra of a request: id, correlation id (a
// string), <H> number of parameters, the parameters. In an EXECUTE it goes on: <H> number of wanted outputs (0 for all), their
// names, the trace context (JSON, or empty). In a CALL it is never empty, and goes on: model (string), version <q> (-1 for any), the names of the inputs, <H>
// number of wanted outputs (0 for all), their names.
//
// DONE of an EXECUTE has <IIQ>: number of answers, 0, size of the outputs' region, which the worker may have made larger
// (ftruncate; never smaller); then as many answers as the requests were. An answer is <BBHI>, 8 bytes: state (0 answered, 1
// error, 2 no answer here: a response sender gives it, or nobody, 3 to be rescheduled), code, number of outputs, bytes of
// extra; then the outputs; then extra, padded: error text (string), <H> number of parameters, parameters, and the names of
// outputs whose index is 65535.
//
// The outputs of an EXECUTE lie in the region named for them, or with flag Same in that of the inputs, from its start on, each at a multiple of 64, none over
// another. The server reads them, or goes on using them, after DONE; the worker writes there during the execution only.
//
// An EXECUTE of a decoupled model is over with its DONE; requests in state 2 stay open until a SEND with flag Final. The
// worker sends one itself for a sender that is dropped without it.
//
// # Codes
//
// 0 unknown, 1 internal, 2 not found, 3 invalid argument, 4 unavailable, 5 unsupported, 6 already exists, 7 cancelled.
//
// # Memory
//
// Inputs are copied once, into the instance's region of inputs, where the worker's arrays view them. They are the model's
// to keep: a worker that at the end of an execution still refers to one says so (Kept), and gets a new region for the
// next. Outputs are copied once by the worker, from its arrays into a region for outputs, or into that of the inputs when nothing refers to
// these any more, which is in the processor's cache already; large ones become tensors there
// and travel on without another copy, small ones are copied out.
package python
