// Package batch executes one batch of tasks at one instance: it gathers the inputs of the tasks,
// moves them to the instance's place, calls the instance, checks the outputs and scatters them.
//
// Rows that agree in shape are joined, padded ones up to the longest; rows that are neighbours in memory are joined
// without a copy. For example, tasks with inputs of shapes [1,4] and [2,4] form a batch of shape [3,4], and each gets
// views of its rows of the output. A model with ragged inputs, computed inputs (batch_input) or scattered outputs
// (batch_output) has a layout, which forms every batch of it, even a batch of one.
//
// A batch without rows is sent to the model. When the model refuses it, the response has no rows.
package batch

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
)

// Runner executes the batches of one model version: it gathers the inputs, calls the instance,
// scatters the outputs and counts. It is safe for concurrent use; one instance executes one
// batch at a time unless its model is concurrent, which is the caller's duty.
type Runner struct {
	s       Settings
	sig     *config.Signature // as the model sees it
	layout  *layout           // nil when batches are rows alone
	last    lastBatches
	batches pool.Of[gatheredBatch]
	reports pool.Of[tracing.Batch]
	joins   pool.Of[compute.Join]
	spilled pool.Of[atomic.Int64] // scheduler.TaskTrace.Spilled
	paces   paces
	learner atomic.Pointer[telemetry.Learner]
	copied  func(name string, from, to tensor.Place, bytes int) // backends.Batch.Copied of every batch
}

// Settings are the parameters of NewRunner.
type Settings struct {
	// Signature is what requests see; tasks have the shapes of the model.
	Signature *config.Signature
	Stats     *telemetry.Model
	Alloc     tensor.Allocator
	// Padding is nil when shapes must match.
	Padding *Padding
	Log     *slog.Logger
	// Watch finds executions that take too long. Nil: none does.
	Watch *Watch
	// Mover is nil where there are no devices.
	Mover *Mover
	// NoRetry forbids to execute the tasks of a failed batch again, one by one: the model keeps state.
	NoRetry bool
	// Iterative allows the model to reschedule requests.
	Iterative bool
	// Serial returns how many requests a call may have that are executed one after the other, see backends.SerialModel. Nil: one.
	Serial func() int
	// Native marks, in traces, a model that is a step of this process.
	Native bool
	// Precision is tracing.Execution.Precision of every batch.
	Precision string
	// InPlace is backends.Batch.InPlace of every batch. No other task may share those inputs.
	InPlace []int32

	_ struct{}
}

// NewRunner returns a Runner.
func NewRunner(s Settings) *Runner {
	r := &Runner{s: s, sig: s.Signature.AtModel(), layout: newLayout(s.Signature)}
	why := telemetry.ForProcess
	if s.Native {
		why = telemetry.ForDevice // a step has no process of its own
	}
	r.copied = func(name string, from, to tensor.Place, bytes int) {
		s.Stats.Copies.Count(name, from, to, why, 1, bytes)
	}
	r.batches.New = func() *gatheredBatch {
		b := &gatheredBatch{Batch: backends.Batch{
			In:        make([]tensor.Tensor, len(r.sig.Inputs)+len(r.sig.Computed)),
			Out:       make([]tensor.Tensor, len(r.sig.Outputs)),
			Allocator: s.Alloc,
			InPlace:   s.InPlace,
		}}
		if r.sig.Decoupled {
			b.responses.runner = r
			b.Responses = &b.responses
		}
		return b
	}
	return r
}

// Signature returns the signature as the model sees it.
func (r *Runner) Signature() *config.Signature { return r.sig }

// Repeats reports whether Run executes the tasks of a failed batch again one by one, so that none fails because of another.
func (r *Runner) Repeats() bool { return !r.sig.Decoupled && !r.s.NoRetry }

// Stats returns the model's counters.
func (r *Runner) Stats() *telemetry.Model { return r.s.Stats }

// Teach has l learn from the batches that devices measure, from now on. Each is one that succeeded as a whole.
func (r *Runner) Teach(l telemetry.Learner) { r.learner.Store(&l) }

// gatheredBatch is a batch whose inputs are gathered: several tasks, or any batch of a model with a layout. It is
// pooled.
type gatheredBatch struct {
	backends.Batch
	responses responses
}

// Run executes the tasks as one batch. Afterwards each task has either its outputs or an error,
// and its inputs are released; completing the tasks is up to the caller.
//
// When the model fails the batch as a whole, Run executes the tasks one by one, so that a request that the model cannot
// take fails alone, and returns false. For example, of four requests one has an image that cannot be decoded: three
// succeed. Side effects of the failed execution happen twice then, as if the clients had retried. A model for which
// that is wrong must fail single requests (Batch.Fail) or be decoupled; batches of decoupled models are not repeated.
//
// hot: no allocation in the steady state.
func (r *Runner) Run(inst backends.Instance, list *scheduler.TaskList, t *scheduler.RunLoop) bool {
	if r.SerialList(list) {
		return r.runSerial(inst, list, t)
	}
	if first := traced(list); first != nil {
		return r.observe(first, inst, list, t)
	}
	return r.run(inst, list, t)
}

// run is Run without traces.
func (r *Runner) run(inst backends.Instance, list *scheduler.TaskList, t *scheduler.RunLoop) bool {
	if list.Len() == 1 && r.layout == nil {
		r.runOne(inst, list.Head, t)
		return true
	}
	return r.runGathered(inst, list, t)
}

// RunSealed executes a sealed list as one batch. It returns false, and does nothing, when the
// model cannot take so many rows, a task cannot share the batch or one has expired.
//
// hot: no allocation.
func (r *Runner) RunSealed(inst backends.Instance, list *scheduler.TaskList, t *scheduler.RunLoop) bool {
	if !list.Sealed() || r.s.Serial != nil || int(list.Rows()) > r.sig.MaxBatch || !r.Uniform(list) {
		return false
	}
	now := t.Now()
	for w := list.Head; w != nil; w = w.Next() {
		if w.Expired(now) != nil {
			return false
		}
	}
	r.Run(inst, list, t)
	return true
}

// runOne executes one task. The batch lies in the task and shares its tensors: nothing is gathered or scattered.
func (r *Runner) runOne(inst backends.Instance, w *scheduler.Task, t *scheduler.RunLoop) {
	b, req := &w.Solo.Batch, &w.Solo.Request[0]
	*req = member(w, 0)
	b.Requests, b.Rows, b.In, b.Out, b.InPlace = w.Solo.Request[:], int(w.Rows), w.In, w.Out, r.s.InPlace
	r.setPlace(b, inst)
	if r.sig.Decoupled {
		b.Responses = &responses{runner: r, tasks: []*scheduler.Task{w}, stream: b.Stream}
	}
	w.Times.Start = t.Now()
	w.Times.InputEnd = w.Times.Start
	span, err := r.begin(b, w)
	if err == nil {
		err = r.moveInputs(b, w)
	}
	mark(span, false)
	if err == nil {
		err = r.execute(w.Ctx, inst, b)
	}
	if req.Out != nil {
		moveOutputs(w.Out, req.Out)
	}
	mark(span, true)
	r.recordBatch(b, w)
	w.Times.InferEnd = telemetry.Now()
	w.Times.End = w.Times.InferEnd
	t.Tick(w.Times.End)
	err = r.checkBatch(b, err)
	r.countOne(span, inst, w, b.Rows, r.finish(w, req, err), err)
	*req = backends.Request{}
}

// runGathered executes tasks as one batch with gathered inputs.
func (r *Runner) runGathered(inst backends.Instance, list *scheduler.TaskList, t *scheduler.RunLoop) bool {
	pooled := r.batches.Get()
	defer r.recycle(pooled)
	b := &pooled.Batch
	times := telemetry.Times{Start: t.Now()}
	r.setPlace(b, inst)
	pooled.responses.stream, b.Rows = b.Stream, 0
	for w := list.Head; w != nil; w = w.Next() {
		if b.Responses != nil {
			pooled.responses.tasks = append(pooled.responses.tasks, w)
		}
		b.Requests = append(b.Requests, member(w, b.Rows))
		b.Rows += int(w.Rows)
	}
	ctx := context.Background()
	if list.Len() == 1 {
		ctx = list.Head.Ctx
	}
	span, err := r.begin(b, list.Head)
	if err == nil {
		err = r.gather(b, list)
	}
	mark(span, false)
	times.InputEnd = telemetry.Now()
	if err == nil {
		err = r.execute(ctx, inst, b)
		mark(span, true)
		r.recordBatch(b, list.Head)
		if err != nil && list.Len() > 1 && !r.sig.Decoupled && !r.s.NoRetry {
			release(span)
			t.Tick(0) // the failed execution took time
			r.runEach(inst, list, t)
			return false
		}
	}
	times.InferEnd = telemetry.Now()
	if err = r.checkBatch(b, err); err == nil {
		err = r.scatter(b, list)
	}
	r.takeRequestOutputs(b, list, err)
	times.End = telemetry.Now()
	t.Tick(times.End)
	r.countAll(span, inst, b, list, &times, err)
	if err == nil {
		list.Seal()
	}
	return true
}

// runEach executes every task of a failed batch as a batch of one, but for those that have expired, which it cancels.
func (r *Runner) runEach(inst backends.Instance, list *scheduler.TaskList, t *scheduler.RunLoop) {
	var done scheduler.TaskList
	for w := list.Pop(); w != nil; w = list.Pop() {
		var one scheduler.TaskList
		one.Push(w)
		if w.Expired(t.Now()) != nil {
			r.Cancel(&one, t.Now())
		} else {
			r.Run(inst, &one, t)
		}
		done.Push(w)
	}
	*list = done
}

// member returns the task as a member of a batch, with its rows from first on.
func member(w *scheduler.Task, first int) backends.Request {
	q := backends.Request{Meta: w.Meta, Ctx: w.Ctx, In: w.In, RequestedOutputs: w.Outputs, Step: w.Step, First: first, Rows: int(w.Rows)}
	if w.Traced != nil {
		q.Trace, q.SubRun = w.Traced.Trace, w.Traced.SubRun
	}
	return q
}

// execute calls the instance. A panic becomes an error of the batch, so that no model ends the server.
func (r *Runner) execute(ctx context.Context, inst backends.Instance, b *backends.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovery.Report(p, r.s.Log, "model '"+r.sig.Model+"'", slog.String("model", r.sig.Model))
		}
	}()
	w := r.s.Watch
	if w == nil {
		return inst.Execute(ctx, b)
	}
	x := w.begin(inst, telemetry.Now())
	defer func() { w.end(x, telemetry.Now()) }()
	return inst.Execute(ctx, b)
}

// checkBatch verifies the outputs of the batch; err is the model's. A refused batch without rows gets empty outputs.
func (r *Runner) checkBatch(b *backends.Batch, err error) error {
	if err == nil {
		err = r.checkOutputs(b.Out, b.Rows, len(b.Requests) == 1)
	}
	if err != nil && b.Rows == 0 {
		err = r.emptyOutputs(b, err)
	}
	return err
}

// checkOutputs verifies outputs. alone marks those of one request, which may be Unchecked.
func (r *Runner) checkOutputs(out []tensor.Tensor, rows int, alone bool) error {
	for i := range out {
		o := &out[i]
		if !o.Present() {
			continue
		}
		p := &r.sig.Outputs[i]
		if !p.Unchecked || !alone {
			if err := r.checkDeclared(p, o, rows); err != nil {
				return err
			}
		}
		if o.DType != tensor.Bytes && !sized(o) {
			return status.Errorf(status.Internal, "output '%s' of model '%s' has %d bytes, expected those of shape %s", p.Name, r.sig.Model, o.Len, o.Shape)
		}
	}
	return nil
}

// checkDeclared verifies an output's type, rows and dimensions.
func (r *Runner) checkDeclared(p *config.Port, o *tensor.Tensor, rows int) error {
	if o.DType != p.DType {
		return status.Errorf(status.Internal, "output '%s' of model '%s' has data-type '%s', expected '%s'", p.Name, r.sig.Model, o.DType, p.DType)
	}
	rowed := r.sig.MaxBatch > 0 && !p.ShapeTensor
	if !p.Unbatched && (!p.Accepts(&o.Shape, r.sig.MaxBatch) || rowed && o.Shape.Dim(0) != int64(rows)) {
		return status.Errorf(status.Internal, "output '%s' of model '%s' has shape %s for a batch of %d, expected %s", p.Name, r.sig.Model, o.Shape, rows, p.FullDims(r.sig.MaxBatch))
	}
	return nil
}

// sized reports whether t has as many bytes as its shape needs. The order of comparisons avoids an overflow.
func sized(t *tensor.Tensor) bool {
	n := t.Shape.Elements()
	return n >= 0 && n <= int64(t.Len) && n*int64(t.DType.Size()) == int64(t.Len)
}

// finish ends one task of an executed batch and reports whether it succeeded; it counts failures. err is the batch's.
func (r *Runner) finish(w *scheduler.Task, member *backends.Request, err error) bool {
	tensor.ReleaseAll(w.In)
	if w.Placeholder {
		tensor.ReleaseAll(w.Out)
		return false
	}
	if w.Err = err; err == nil {
		w.Err = member.Err
	}
	if w.Rescheduled = member.Rescheduled && w.Err == nil; w.Rescheduled {
		if r.s.Iterative {
			return false
		}
		w.Rescheduled, w.Err = false, status.Errorf(status.Unsupported,
			"model '%s' reschedules a request, expected 'sequence_batching { iterative_sequence: true }' in its configuration", r.sig.Model)
	}
	if w.Err == nil {
		w.ResponseParams = member.ResponseParams
		if d := w.Meta.Deadline; d > 0 {
			r.s.Stats.Slack(d - w.Times.End)
		}
		return true
	}
	tensor.ReleaseAll(w.Out)
	reason := telemetry.Backend
	if status.CodeOf(w.Err) == status.Cancelled { // the model itself may notice that its client has disconnected
		reason = telemetry.Canceled
	}
	r.s.Stats.Failed(reason, w.Times.End-w.Enqueued)
	return false
}

// RefusalOf returns the counter of a task that scheduler.Task.Expired fails with err.
func RefusalOf(err error) telemetry.Refusal {
	if err == status.ErrDeadline || err == status.ErrLate { //nolint:errorlint // never wrapped
		return telemetry.DeadlinePassed
	}
	return telemetry.ClientGone
}

// Cancel fails expired tasks before they execute. Completing them is up to the caller.
func (r *Runner) Cancel(list *scheduler.TaskList, now int64) {
	for w := list.Head; w != nil; w = w.Next() {
		w.Err = w.Expired(now)
		if w.Err == nil {
			w.Err = status.ErrCancelled
		}
		w.Refusal = RefusalOf(w.Err)
	}
	r.Drop(list, now)
}

// Drop releases the inputs of tasks that have Err and Refusal, and counts them. The caller completes them.
func (r *Runner) Drop(list *scheduler.TaskList, now int64) {
	for w := list.Head; w != nil; w = w.Next() {
		tensor.ReleaseAll(w.In)
		r.s.Stats.Refused(w.Refusal, now-w.Enqueued)
	}
}

// Reject fails tasks with err before they execute. Completing them is up to the caller.
func (r *Runner) Reject(list *scheduler.TaskList, err error, now int64) {
	for w := list.Head; w != nil; w = w.Next() {
		w.Err, w.Refusal = err, telemetry.NotServing
	}
	r.Drop(list, now)
}

// recycle releases what is left in a batch of several tasks and returns it to the pool.
func (r *Runner) recycle(b *gatheredBatch) {
	clear(b.responses.tasks)
	b.responses.tasks = b.responses.tasks[:0]
	tensor.ReleaseAll(b.In)
	tensor.ReleaseAll(b.Out)
	for i := range b.Requests {
		tensor.ReleaseAll(b.Requests[i].Out)
	}
	clear(b.Requests)
	b.Requests = b.Requests[:0]
	b.Stream, b.AnyPlace, b.Copied, b.Serial, b.responses.stream = nil, nil, nil, false, nil
	r.batches.Put(b)
}

// errGather returns why an input cannot be joined.
func errGather(sig *config.Signature, port int, why string) error {
	return status.Errorf(status.Internal, "cannot batch input '%s' of model '%s': %s", sig.Inputs[port].Name, sig.Model, why)
}
