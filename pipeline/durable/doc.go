// Package durable runs jobs (core/job) on Temporal: one model or ensemble over every row of a dataset, on any number of
// workers, in spite of crashes of every process.
//
// A Service submits jobs and shows them. A Worker executes them; each server with jobs has one, and `tutti worker` is one
// alone. They meet in a Temporal server only. Rows and tensors never go there: they are read from the dataset and written
// to the output by the worker that executes them.
//
// # The flow of a job
//
//	Submit -> workflow tutti.job (workflow.go), on the task queue tutti
//	            |  activity check   (check.go), on tutti-MODEL: binds columns to inputs, tries the first rows,
//	            |                   claims the output, pins the job to the fingerprint of the model
//	            |  activity cut     (cut.go), on tutti: reads the dataset once, writes the chunks to _job/RUN/plan/;
//	            |                   another attempt goes on where this one was
//	            |  activity chunk   (chunk.go), on tutti-MODEL, for each chunk: a sliding window of them
//	            |                   (a job that names a device: on tutti-MODEL/gpu or tutti-MODEL/cpu, as check)
//	            |    read rows -> units of max_batch_size rows -> infer.Inferer (send.go) -> parts (results.go)
//	            |  continue-as-new after 600 chunks: the history of a run stays below 5,000 events
//	            |  activity finish  (finish.go), on tutti: checks counts and checksums, writes _manifest.json
//	            v
//	          completed
//
// A workflow is code that Temporal executes again from its history, so runJob is deterministic: it starts activities, waits
// for their results and counts. An activity is a function that is called until it has succeeded. What it receives and
// returns is stored in the history: here these are references and counters of some hundred bytes, whatever the rows are.
//
// # Exactly one result for each row
//
// A chunk may be executed several times, even at the same time, when a worker is slow or cut off. Each attempt writes
// parts with names of its own, atomically, and then the chunk's sidecar (sidecar.go), which names its parts. The last
// sidecar counts: finish reads one for each chunk and removes the parts that none names. A chunk that takes longer than
// ten seconds ends a part every ten seconds, and its next attempt continues behind the last one.
//
// # Reuse
//
// Sidecars have the keys of rows: hashes of their content. A job with the same output and recipe (the fingerprint of the
// model and what is written) reads the sidecars of earlier runs, whether these have completed or not (earlier.go). A chunk
// that is wholly the same keeps its parts. Other rows that have a result are copied. All others are executed: they are new, or
// have failed.
//
// # Failures
//
// faults.go sorts errors. A row's fault makes a failed row, with its error and its content in _errors. What may pass,
// for example a full disk, a bucket that is away or a model that is being loaded, is tried again without end: the job is
// waiting, with the reason. Everything else, for example a dataset that changed, ends the job as failed.
package durable
