package scheduler

import (
	"context"
	"log/slog"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Runner executes batches of one model version: it gathers the inputs, calls the
// instance, scatters the outputs and counts. It is safe for concurrent use.
type Runner struct {
	sig     *config.Signature // as the model sees it
	form    *form             // nil when rows alone make a batch
	stats   *telemetry.Model
	alloc   tensor.Allocator
	pad     *Padding
	log     *slog.Logger
	mover   *Mover
	once    bool
	again   bool
	over    []int32
	native  bool
	seats   seats
	batches pool.Of[joint]
	reports pool.Of[tracing.Batch]
}

// RunnerSettings are what a Runner is made with.
type RunnerSettings struct {
	// Signature is what requests see; works have the shapes of the model.
	Signature *config.Signature
	Stats     *telemetry.Model
	Alloc     tensor.Allocator
	// Padding is nil when shapes must match.
	Padding *Padding
	Log     *slog.Logger
	// Mover is nil where there are no devices.
	Mover *Mover
	// Once keeps a failed batch from being executed again work by work: its rows have
	// their places, or the model remembers what it has seen.
	Once bool
	// Iterative lets the model reschedule requests.
	Iterative bool
	// Native says of traced works that the model is a step of this process.
	Native bool
	// Over is backends.Batch.Over of every batch. Those inputs are each work's alone.
	Over []int32

	_ struct{}
}

// NewRunner returns a Runner.
func NewRunner(s RunnerSettings) *Runner {
	r := &Runner{
		sig: s.Signature.AtModel(), form: newForm(s.Signature), stats: s.Stats, alloc: s.Alloc, pad: s.Padding, log: s.Log,
		mover: s.Mover, once: s.Once, again: s.Iterative, over: s.Over, native: s.Native,
	}
	r.batches.New = func() *joint {
		b := &joint{Batch: backends.Batch{
			In:        make([]tensor.Tensor, len(r.sig.Inputs)+len(r.sig.Computed)),
			Out:       make([]tensor.Tensor, len(r.sig.Outputs)),
			Allocator: r.alloc,
			InPlace:      r.over,
		}}
		if r.sig.Decoupled {
			b.answers.runner = r
			b.Responses = &b.answers
		}
		return b
	}
	return r
}

// joint is a batch of several works.
type joint struct {
	backends.Batch
	answers answers
}

// Run executes the works of list as one batch. Afterwards each work has either its
// outputs or an error; the inputs are released. When the batch as a whole fails in
// the model, its works execute one by one, so that a request that the model cannot
// take fails alone; Run then reports false. What the failed execution did besides its
// outputs it does a second time then, as it would had its clients asked again: models
// for which that is wrong must not fail as a batch but by Batch.Fail, or be decoupled,
// whose batches are not repeated.
//
// hot: no allocation in the steady state.
func (r *Runner) Run(inst backends.Instance, list *TaskList, t *RunLoop) bool {
	if first := traced(list); first != nil {
		return r.observe(first, inst, list, t)
	}
	return r.run(inst, list, t)
}

// run is Run without a look at what is traced.
func (r *Runner) run(inst backends.Instance, list *TaskList, t *RunLoop) bool {
	if list.n == 1 && r.form == nil {
		r.runOne(inst, list.Head, t)
		return true
	}
	return r.runMany(inst, list, t)
}

// runOne executes a work by itself. The batch is part of the work and shares its
// inputs and outputs: nothing is gathered and nothing handed over.
func (r *Runner) runOne(inst backends.Instance, w *Task, t *RunLoop) {
	b := &w.solo.batch
	w.solo.member[0] = w.req(0)
	b.Requests, b.Rows, b.In, b.Out, b.InPlace = w.solo.member[:], int(w.Rows), w.In, w.Out, r.over
	s := r.streamOf(inst)
	r.at(s, b)
	if r.sig.Decoupled {
		b.Responses = &answers{runner: r, works: []*Task{w}, stream: s}
	}
	w.Times.Start = t.Now()
	w.Times.InputEnd = w.Times.Start
	err := r.place(s, b.In, w)
	if err == nil {
		err = r.execute(w.Ctx, inst, b)
	}
	if own := w.solo.member[0].Out; own != nil {
		copyOwn(w.Out, own)
	}
	stamp(s, b.In, b.Out)
	w.Times.InferEnd = telemetry.Now()
	w.Times.End = w.Times.InferEnd
	t.Tick(w.Times.End)
	if err == nil {
		err = r.check(b)
	}
	if err != nil && b.Rows == 0 {
		err = r.nothing(b, err)
	}
	if r.settle(w, &w.solo.member[0], err) {
		r.stats.Alone(b.Rows, w.Enqueued, &w.Times)
	} else {
		r.stats.Executed(b.Rows, &w.Times)
	}
	w.solo.member[0] = backends.Request{}
}

// runMany executes several works together.
func (r *Runner) runMany(inst backends.Instance, list *TaskList, t *RunLoop) bool {
	pooled := r.batches.Get()
	defer r.recycle(pooled)
	b := &pooled.Batch
	times := telemetry.Times{Start: t.Now()}
	s := r.streamOf(inst)
	r.at(s, b)
	pooled.answers.stream = s
	fill(pooled, list)
	ctx := context.Background()
	if list.n == 1 {
		ctx = list.Head.Ctx
	}
	err := r.assemble(s, b, list)
	times.InputEnd = telemetry.Now()
	if err == nil {
		// What has been answered cannot be asked again.
		err = r.execute(ctx, inst, b)
		stamp(s, b.In, b.Out)
		if err != nil && list.n > 1 && !r.sig.Decoupled && !r.once {
			r.separately(inst, list, t)
			return false
		}
	}
	times.InferEnd = telemetry.Now()
	if err == nil {
		err = r.check(b)
	}
	if err != nil && b.Rows == 0 {
		err = r.nothing(b, err)
	}
	if err == nil {
		err = r.scatter(b, list)
	}
	r.takeOwn(b, list, err)
	times.End = telemetry.Now()
	t.Tick(times.End)
	r.stats.Executed(b.Rows, &times)
	i := 0
	for w := list.Head; w != nil; w = w.next {
		w.Times = times
		if r.settle(w, &b.Requests[i], err) {
			r.stats.Succeeded(int(w.Rows), w.Enqueued, &times)
		}
		i++
	}
	if err == nil {
		list.Seal()
	}
	return true
}

// separately executes every work as a batch of its own.
func (r *Runner) separately(inst backends.Instance, list *TaskList, t *RunLoop) {
	var done TaskList
	for w := list.Pop(); w != nil; w = list.Pop() {
		var one TaskList
		one.Push(w)
		t.Tick(0)
		if w.Expired(t.Now()) != nil {
			r.Cancel(&one, t.Now())
		} else {
			r.Run(inst, &one, t)
		}
		done.Push(w)
	}
	*list = done
}

// req returns the task as a member of a batch, with its rows from first on.
func (w *Task) req(first int) backends.Request {
	q := backends.Request{Meta: w.Meta, Ctx: w.Ctx, In: w.In, RequestedOutputs: w.Outputs, Step: w.Step, First: first, Rows: int(w.Rows)}
	if w.Traced != nil {
		q.Trace, q.SubRun = w.Traced.Trace, w.Traced.SubRun
	}
	return q
}

// fill sets the batch's members.
func fill(b *joint, list *TaskList) {
	b.Rows = 0
	for w := list.Head; w != nil; w = w.next {
		if b.Responses != nil {
			b.answers.works = append(b.answers.works, w)
		}
		b.Requests = append(b.Requests, w.req(b.Rows))
		b.Rows += int(w.Rows)
	}
}

// execute calls the instance; a panic becomes an error of the batch, so that no
// model takes the server down.
func (r *Runner) execute(ctx context.Context, inst backends.Instance, b *backends.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovery.Report(p, r.log, "model '"+r.sig.Model+"'", slog.String("model", r.sig.Model))
		}
	}()
	return inst.Execute(ctx, b)
}

// check verifies what the instance put out: a batch with wrong rows cannot be scattered.
func (r *Runner) check(b *backends.Batch) error {
	return r.checkOutputs(b.Out, b.Rows, len(b.Requests) == 1)
}

// checkOutputs verifies outputs. Those of one request alone may be Free.
func (r *Runner) checkOutputs(out []tensor.Tensor, rows int, alone bool) error {
	for i := range out {
		o := &out[i]
		if !o.Present() {
			continue
		}
		p := &r.sig.Outputs[i]
		if !p.Free || !alone {
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
	if !p.Whole && (!p.Accepts(&o.Shape, r.sig.MaxBatch) || rowed && o.Shape.Dim(0) != int64(rows)) {
		return status.Errorf(status.Internal, "output '%s' of model '%s' has shape %s for a batch of %d, expected %s", p.Name, r.sig.Model, o.Shape, rows, p.FullDims(r.sig.MaxBatch))
	}
	return nil
}

// sized reports whether t has the bytes that its shape says. A wild shape's size does
// not fit any tensor, whatever it overflows to.
func sized(t *tensor.Tensor) bool {
	n := t.Shape.Elements()
	return n >= 0 && n <= int64(t.Len) && n*int64(t.DType.Size()) == int64(t.Len)
}

// settle ends one work of an executed batch and reports whether it succeeded; failures
// it counts. err is the batch's.
func (r *Runner) settle(w *Task, member *backends.Request, err error) bool {
	tensor.ReleaseAll(w.In)
	if w.Placeholder {
		tensor.ReleaseAll(w.Out)
		return false
	}
	if w.Err = err; err == nil {
		w.Err = member.Err
	}
	if w.Rescheduled = member.Rescheduled && w.Err == nil; w.Rescheduled {
		if r.again {
			return false
		}
		w.Rescheduled, w.Err = false, errReschedule(r.sig.Model)
	}
	if w.Err == nil {
		w.ResponseParams = member.ResponseParams
		if d := w.Meta.Deadline; d > 0 {
			r.stats.Slack(d - w.Times.End)
		}
		return true
	}
	tensor.ReleaseAll(w.Out)
	r.stats.Failed(reason(w.Err), w.Times.End-w.Enqueued)
	return false
}

func errReschedule(model string) error {
	return status.Errorf(status.Unsupported,
		"model '%s' reschedules a request, expected 'sequence_batching { iterative_sequence: true }' in its configuration", model)
}

// reason says as what a failed work counts: a model may notice itself that its client
// has gone.
func reason(err error) telemetry.Reason {
	if status.CodeOf(err) == status.Cancelled {
		return telemetry.Canceled
	}
	return telemetry.Backend
}

// refusalOf says why a work that is Over is not executed.
func refusalOf(over error) telemetry.Refusal {
	if over == status.ErrDeadline { //nolint:errorlint // never wrapped
		return telemetry.DeadlinePassed
	}
	return telemetry.ClientGone
}

// Cancel gives up works that are Over, before they are executed: their inputs are
// released and they count as cancelled. Completing them is the caller's.
func (r *Runner) Cancel(list *TaskList, now int64) {
	for w := list.Head; w != nil; w = w.next {
		w.Err = w.Expired(now)
		if w.Err == nil {
			w.Err = status.ErrCancelled
		}
		w.why = refusalOf(w.Err)
	}
	r.giveUp(list, now)
}

// giveUp ends works that have their error but are not executed.
func (r *Runner) giveUp(list *TaskList, now int64) {
	for w := list.Head; w != nil; w = w.next {
		tensor.ReleaseAll(w.In)
		r.stats.Refused(w.why, now-w.Enqueued)
	}
}

// TurnAway fails works with err before they are executed: their inputs are released and
// they count as failed. Completing them is the caller's.
func (r *Runner) Reject(list *TaskList, err error, now int64) {
	for w := list.Head; w != nil; w = w.next {
		w.Err = err
		tensor.ReleaseAll(w.In)
		r.stats.Refused(telemetry.NotServing, now-w.Enqueued)
	}
}

// recycle returns the batch of several works, with what was gathered for it.
func (r *Runner) recycle(b *joint) {
	clear(b.answers.works)
	b.answers.works = b.answers.works[:0]
	tensor.ReleaseAll(b.In)
	tensor.ReleaseAll(b.Out)
	for i := range b.Requests {
		tensor.ReleaseAll(b.Requests[i].Out)
	}
	clear(b.Requests)
	b.Requests = b.Requests[:0]
	b.Stream, b.answers.stream = nil, nil
	r.batches.Put(b)
}

// elementBytes returns the size of n elements of d, for fixed-size types.
func elementBytes(d tensor.DType, n int64) int { return int(n) * d.Size() }

// errGather names an input that cannot join a batch.
func errGather(sig *config.Signature, port int, why string) error {
	return status.Errorf(status.Internal, "cannot batch input '%s' of model '%s': %s", sig.Inputs[port].Name, sig.Model, why)
}
