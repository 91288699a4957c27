package python

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// openCall is an inference call (BLS) in flight.
type openCall struct {
	ctx       context.Context //nolint:containedctx // the context of the call
	cancel    context.CancelCauseFunc
	cancelled atomic.Bool // the caller requested cancellation

	arrived int64 // by telemetry.Now
}

// openCallKey is the key of a call's context for its openCall.
type openCallKey struct{}

// Causes of a cancelled call.
var (
	errAbandoned = errors.New("the model that made it no longer waits")
	errOuter     = errors.New("the request that it was made for is cancelled")
	errLate      = errors.New("the deadline of the request that it was made for has passed")
)

// openCall opens a call. It is cancelled when its process exits, and with the only request in flight, if there is exactly one.
func (s *side) openCall(id uint32) {
	s.w.m.alone.Store(true)
	c := &openCall{arrived: telemetry.Now()}
	c.ctx, c.cancel = context.WithCancelCause(context.WithValue(s.ctx, openCallKey{}, c))
	if parent, _, _ := s.w.running.caller(); parent != nil {
		cancel := c.cancel // the function below may run at once
		stop := context.AfterFunc(parent, func() {
			if errors.Is(parent.Err(), context.DeadlineExceeded) {
				cancel(errLate)
			} else {
				cancel(errOuter)
			}
		})
		c.cancel = func(why error) {
			stop()
			cancel(why)
		}
	}
	s.open.Store(id, c)
}

func (s *side) findCall(id uint32) *openCall {
	c, _ := s.open.Load(id)
	call, _ := c.(*openCall)
	return call
}

// abandon cancels a call whose replies are not needed.
func (s *side) abandon(id uint32) {
	if c := s.findCall(id); c != nil {
		c.cancel(errAbandoned)
	}
}

// cancelledByCaller reports whether the client of a request cancelled it or disconnected. ctx may be nil.
func cancelledByCaller(ctx context.Context) bool {
	if ctx == nil {
		return false
	}
	if ctx.Err() != nil {
		return true
	}
	c, ok := ctx.Value(openCallKey{}).(*openCall)
	return ok && c.cancelled.Load()
}

// infer handles CALL: it runs an inference and replies with its responses.
func (s *side) infer(p *packet) error {
	defer s.open.Delete(p.id)
	defer s.abandon(p.id)
	w, call := s.w, s.findCall(p.id)
	if w.m.b.infer == nil {
		return status.Errorf(status.Unsupported, "no models can be called here")
	}
	req, many, want, err := w.request(p)
	if err != nil {
		return err
	}
	if err := s.placeable(want); err != nil {
		req.Release()
		return err
	}
	req.KeepPlaces = want.keeps(s)
	if err := w.callable(req, many); err != nil {
		req.Release()
		return err
	}
	if req.Timeout > 0 && len(w.m.b.steps(req.Model)) == 0 { // a timeout of an ensemble starts in the queues of its steps
		req.Arrived += call.arrived
	}
	_, at, client := w.running.caller()
	req.Origin.Context = at
	req.SetClient(client)
	req.Nested = true
	target := req.Model
	if w.running.busy() && !w.m.sig.Decoupled {
		x := wait{w.m.sig.Model, w, target}
		if !w.m.b.callGraph.wait(x) {
			req.Release()
			return status.Reasonf(status.QueueFull, "model '%s' calls model '%s', all of whose instances wait for it: expected more in its instance_group", w.m.sig.Model, target)
		}
		defer w.m.b.callGraph.done(x)
	}
	sink := &callSink{s: s, id: p.id, call: call, model: target, want: want, over: make(chan struct{})}
	w.m.b.infer.Submit(call.ctx, req, sink)
	<-sink.over
	return errReplied
}

// callable makes the checks that Triton makes before a call, with its error texts.
func (w *worker) callable(req *infer.Request, many bool) error {
	if w.m.b.catalog == nil {
		return nil
	}
	const running = "Model %s - Error when running inference: "
	about, err := w.m.b.catalog.Describe(req.Model, req.Version)
	if err != nil { // the last sentence is the text of versions before 2.70
		return status.Errorf(status.CodeOf(err), running+"%w. Failed for execute the inference request. Model '%s' is not ready.", req.Model, err, req.Model)
	}
	if about.Decoupled && !many {
		return status.Errorf(status.Internal, running+"Model %s is using the decoupled. The current BLS request call doesn't support models using "+
			"the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'", req.Model, req.Model)
	}
	return nil
}

// request decodes a CALL. many means that any number of responses is expected, want is where. The request owns its tensors.
func (w *worker) request(p *packet) (req *infer.Request, many bool, want preferred, err error) {
	r := reader{b: p.body}
	req = infer.NewRequest()
	req.Sequence.ID, req.Priority, req.Timeout = r.u64(), r.u64(), r.u64()
	flags := r.u32()
	req.Sequence.Start, req.Sequence.End, many = flags&requestStart != 0, flags&requestEnd != 0, flags&requestMany != 0
	n := int(r.u16())
	want = preferred(r.u16())
	extra := int(r.u32())
	req.Arrived = -int64(r.u32()) * int64(time.Microsecond)
	parts := make([]part, 0, min(n, len(p.body)/partBytes))
	for ; n > 0 && !r.bad; n-- {
		parts = append(parts, r.part())
	}
	x := reader{b: r.take(extra)}
	req.ID = x.text()
	req.Sequence.Name = x.text()
	req.Params = x.params(req.Params)
	req.Model = x.text()
	if version := int64(x.u64()); version > 0 {
		req.Version = version
	}
	err = w.callInputs(p, req, parts, &x)
	for left := x.u16(); left > 0 && !x.bad; left-- {
		req.Outputs = append(req.Outputs, x.text())
	}
	if r.bad || x.bad {
		err = status.Errorf(status.Internal, "unexpected request of %d bytes", len(p.body))
	}
	if err != nil {
		req.Release()
		return nil, false, want, err
	}
	return req, many, want, nil
}

func (w *worker) callInputs(p *packet, req *infer.Request, parts []part, names *reader) error {
	mem, release := p.memory(0, w.m.alloc)
	defer release()
	mem.gpu = w.gpu
	defer w.gpu.giveBackAll(appendRegions(nil, parts))
	for i := range parts {
		name := names.text()
		if !mem.valid(&parts[i]) {
			return status.Errorf(status.InvalidArg, "unexpected input '%s' for model '%s': a %s tensor of shape %s and %d bytes",
				name, req.Model, parts[i].dtype, parts[i].shape, parts[i].size)
		}
		if parts[i].dtype == tensor.Bytes {
			if err := tensor.CheckBytes(mem.mem[parts[i].off:parts[i].off+parts[i].size], parts[i].shape.Elements()); err != nil {
				return status.Errorf(status.InvalidArg, "input '%s' for model '%s': %w", name, req.Model, err)
			}
		}
		t, err := mem.tensor(&parts[i])
		if err != nil {
			return err
		}
		if parts[i].gpu != 0 && w.m.copied != nil { // by the worker
			w.m.copied(name, t.Buf.Place(), t.Buf.Place(), t.Len)
		}
		if req.Input(name) != nil {
			t.Release()
			return status.Errorf(status.InvalidArg, "input '%s' for model '%s' is given twice", name, req.Model)
		}
		req.Inputs = append(req.Inputs, infer.Named{Name: name, Tensor: t})
	}
	return nil
}

// callSink sends the responses of a call to the process that made it.
type callSink struct {
	s     *side
	id    uint32
	call  *openCall
	model string
	want  preferred
	final bool
	over  chan struct{}
}

// Send implements infer.Sink.
func (k *callSink) Send(r *infer.Response) {
	flags := uint16(0)
	if k.final = r.Final; k.final {
		flags = flagFinal
	}
	if err := k.s.sendResponse(k.id, flags, r, k.want); err != nil {
		k.s.reply(k.id, flags, err)
	}
	r.Release()
}

// Close implements infer.Sink.
func (k *callSink) Close(err error) {
	if err != nil {
		if cause := context.Cause(k.call.ctx); cause != nil && status.CodeOf(err) == status.Cancelled {
			err = status.Errorf(status.Cancelled, "the call of model '%s' was cancelled: %w", k.model, cause)
		}
		k.s.reply(k.id, flagFinal, calledError(k.model, err))
	} else if !k.final {
		b := append(newBody(nil), stateNone, 0, 0, 0, 0, 0, 0, 0)
		_ = k.s.link.send(kindReply, flagFinal, k.id, b) // the process may have exited
	}
	close(k.over)
}

// calledError returns the error of a call with the called model as the step that is the cause, in front of one of that model's own.
func calledError(model string, err error) error {
	d := status.DetailsOf(err)
	if !d.Own {
		return err
	}
	e := &status.Error{Code: status.CodeOf(err), Msg: status.Text(err), Err: err, Reason: d.Reason, RetryAfter: d.RetryAfter, Finish: d.Finish, Step: model}
	if d.Step != "" && d.Step != model {
		e.Step += "/" + d.Step
	}
	return e
}

// callGraph records which workers wait for which models. It detects deadlocks: calls that, through other models, wait for their
// own caller. For example, the only instance of model a calls b, whose only instance calls a.
type callGraph struct {
	// steps returns the models of an ensemble's steps, and none for any other model. It is nil when there are no ensembles.
	steps func(name string) []string

	mu        sync.Mutex
	instances map[string]int      // instances of each Python model, guarded by mu
	waits     []wait              // guarded by mu
	ensembles map[string][]string // the models of each ensemble that was called, guarded by mu
}

// wait is a pending call of a worker.
type wait struct {
	caller string
	w      *worker
	target string
}

// set sets the number of instances of a Python model, 0 for a model that is gone, and forgets its calls.
func (b *callGraph) set(name string, instances int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.instances[name] = instances
	b.waits = slices.DeleteFunc(b.waits, func(x wait) bool { return x.caller == name })
	if instances == 0 {
		delete(b.instances, name)
	}
}

// wait records a pending call. It returns false, and records nothing, when the call would be a deadlock.
func (b *callGraph) wait(x wait) bool {
	called := map[string][]string{}
	b.expand(called, x.target) // without mu: a goroutine that loads a model may hold the catalog's lock
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.Copy(b.ensembles, called)
	if b.instances[x.caller] == 0 {
		return true
	}
	b.waits = append(b.waits, x)
	if b.stuck(x.target, map[string]bool{}) {
		b.waits = b.waits[:len(b.waits)-1]
		return false
	}
	return true
}

// done removes a recorded call.
func (b *callGraph) done(x wait) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waits, x); i >= 0 {
		b.waits = slices.Delete(b.waits, i, i+1)
	}
}

// forget removes the calls of a worker that has ended: another one serves its instance.
func (b *callGraph) forget(w *worker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits = slices.DeleteFunc(b.waits, func(x wait) bool { return x.w == w })
}

// stuck reports whether every instance of a model waits for a stuck model, or an ensemble has a stuck step. A model in seen counts
// as stuck: it is part of a cycle.
func (b *callGraph) stuck(name string, seen map[string]bool) bool {
	if seen[name] {
		return true
	}
	seen[name] = true
	defer delete(seen, name)
	n := b.instances[name]
	if n == 0 {
		return slices.ContainsFunc(b.ensembles[name], func(step string) bool { return b.stuck(step, seen) })
	}
	targets := map[*worker]map[string]bool{} // of each caller
	for _, x := range b.waits {
		if x.caller == name {
			if targets[x.w] == nil {
				targets[x.w] = map[string]bool{}
			}
			targets[x.w][x.target] = true
		}
	}
	if len(targets) < n {
		return false
	}
	known := map[string]bool{} // each target is searched once
	for _, list := range targets {
		waits := false
		for target := range list {
			if _, searched := known[target]; !searched {
				known[target] = b.stuck(target, seen)
			}
			waits = waits || known[target]
		}
		if !waits {
			return false
		}
	}
	return true
}

// expand adds the steps of an ensemble, recursively, to a map.
func (b *callGraph) expand(to map[string][]string, name string) {
	if _, seen := to[name]; seen || b.steps == nil {
		return
	}
	to[name] = b.steps(name)
	for _, step := range to[name] {
		b.expand(to, step)
	}
}

// steps returns the models of an ensemble's steps.
func (b *backend) steps(name string) []string {
	cfg, err := b.catalog.Config(name, 0)
	if err != nil {
		return nil // the call reports the error
	}
	var list []string
	for _, s := range config.StepModels(cfg) {
		list = append(list, s.GetModelName())
	}
	return list
}
