package exec_test

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler/direct"
)

// counts returns the decoupled model that responds to n with 0 to n-1.
func counts() fake {
	sig := signature("count", 1, 8)
	sig.Decoupled = true
	return fake{sig: sig, run: count, queued: true, alone: true}
}

const countThen = `
step { model_name: "count" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "ONE" } }
step { model_name: "next" model_version: -1 input_map { key: "INPUT0" value: "ONE" } output_map { key: "OUTPUT0" value: "OUT" } }`

func number(b *bench, n float32) *infer.Request {
	req := infer.NewRequest()
	req.Inputs = append(req.Inputs, infer.Named{Name: "N", Tensor: b.floats([]float32{n})})
	return req
}

// TestSubRunsRespondInOrder checks that responses are in order when the second sub-run completes first.
func TestSubRunsRespondInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	second := make(chan struct{})
	models := fakes{"count": counts(), "next": {sig: signature("next", 1, 8), queued: true, alone: true, instances: 1, run: func(b *backends.Batch) error {
		if tensor.Slice[float32](&b.In[0])[0] == 0 {
			<-second
		} else {
			defer close(second)
		}
		return share(b)
	}}}
	x, stats := b.ensemble(t, models, "N", "OUT", countThen)
	g := &collector{done: make(chan error, 1)}
	x.Submit(t.Context(), number(b, 2), g)
	err := <-g.done
	if diff := cmp.Diff([]results{{"OUT": 0}, {"OUT": 1}}, g.responses); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if n := stats.Requests().Count; n != 1 {
		t.Errorf("%d requests succeeded, want 1", n)
	}
}

// TestNestedStreams checks an ensemble that nests a decoupled ensemble twice.
func TestNestedStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inner, err := config.Parse("config.pbtxt", []byte(`platform: "ensemble" max_batch_size: 8
input { name: "N" data_type: TYPE_FP32 dims: -1 } output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling {`+countThen+`}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := config.Normalise(inner, "inner"); err != nil {
		t.Fatal(err)
	}
	models := fakes{"count": counts(), "next": {sig: signature("next", 1, 8), run: add(1)}, "inner": {ensemble: inner}}
	x, _ := b.ensemble(t, models, "N", "OUT MID", `
step { model_name: "inner" model_version: -1 input_map { key: "N" value: "N" } output_map { key: "OUT" value: "MID" } }
step { model_name: "inner" model_version: -1 input_map { key: "N" value: "MID" } output_map { key: "OUT" value: "OUT" } }`)
	g := &collector{done: make(chan error, 1)}
	x.Submit(t.Context(), number(b, 3), g)
	err = <-g.done
	want := []results{{"MID": 1, "OUT": 1}, {"MID": 2, "OUT": 1}, {"MID": 2, "OUT": 2}, {"MID": 3, "OUT": 1}, {"MID": 3, "OUT": 2}, {"MID": 3, "OUT": 3}}
	if diff := cmp.Diff(want, g.responses); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if !x.Plan().Signature.Decoupled || !x.Plan().Config.GetModelTransactionPolicy().GetDecoupled() {
		t.Error("the ensemble is not decoupled")
	}
}

// TestStepsShareAnInstance checks that two decoupled steps of one model with one instance do not deadlock when each
// runs ahead.
func TestStepsShareAnInstance(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, _ := b.ensemble(t, fakes{"count": counts()}, "N", "OUT", `max_inflight_requests: 2
step { model_name: "count" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "MID" } }
step { model_name: "count" model_version: -1 input_map { key: "INPUT0" value: "MID" } output_map { key: "OUTPUT0" value: "OUT" } }`)
	var all []*collector
	for range 2 {
		req := number(b, 140)
		req.Async = true
		g := &collector{done: make(chan error, 1)}
		all = append(all, g)
		x.Submit(t.Context(), req, g)
	}
	for _, g := range all {
		if err := <-g.done; err != nil || len(g.responses) != 140*139/2 {
			t.Errorf("%v, %d responses", err, len(g.responses))
		}
	}
}

// TestSubRunsOutOfOrder checks that requests complete when the second sub-run's decoupled step gets the only
// instance first: its sub-runs fill the limit, and respond after those of the step that waits for the instance.
func TestSubRunsOutOfOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begun := make(chan struct{})
	swap := func(b *backends.Batch) error {
		if tensor.Slice[float32](&b.In[0])[0] == 0 {
			<-begun
		}
		return add(5)(b)
	}
	many := counts()
	many.sig.Model = "many"
	many.run = func(b *backends.Batch) error {
		if tensor.Slice[float32](&b.In[0])[0] == 6 { // the second sub-run's step, which comes first
			close(begun)
		}
		return count(b)
	}
	models := fakes{
		"count": counts(), "many": many, "next": {sig: signature("next", 1, 8), run: share},
		"swap": {sig: signature("swap", 1, 8), run: swap, queued: true, alone: true, instances: 1},
	}
	x, _ := b.ensemble(t, models, "N", "OUT", `max_inflight_requests: 2
step { model_name: "count" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "ONE" } }
step { model_name: "swap" model_version: -1 input_map { key: "INPUT0" value: "ONE" } output_map { key: "OUTPUT0" value: "TWO" } }
step { model_name: "many" model_version: -1 input_map { key: "INPUT0" value: "TWO" } output_map { key: "OUTPUT0" value: "MID" } }
step { model_name: "next" model_version: -1 input_map { key: "INPUT0" value: "MID" } output_map { key: "OUTPUT0" value: "OUT" } }`)
	g := &collector{done: make(chan error, 1)}
	x.Submit(t.Context(), number(b, 2), g)
	err := <-g.done
	want := []results{{"OUT": 0}, {"OUT": 1}, {"OUT": 2}, {"OUT": 3}, {"OUT": 4}, {"OUT": 0}, {"OUT": 1}, {"OUT": 2}, {"OUT": 3}, {"OUT": 4}, {"OUT": 5}}
	if diff := cmp.Diff(want, g.responses); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestInflightLimit checks that a step with a limit of two never has more requests.
// shows: ensembles.inflight
func TestInflightLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var now, most, sent atomic.Int32
	models := fakes{"count": counts(), "next": {sig: signature("next", 1, 8), queued: true, alone: true, instances: 7, run: func(b *backends.Batch) error {
		n := now.Add(1)
		defer now.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		return share(b)
	}}}
	many := models["count"]
	many.run = func(b *backends.Batch) error {
		sent.Add(1)
		defer sent.Add(-1)
		if sent.Load() > 2 {
			return status.Errorf(status.Internal, "%d at a time", sent.Load())
		}
		return count(b)
	}
	many.instances = 7
	models["count"] = many
	x, _ := b.ensemble(t, models, "N", "OUT", "max_inflight_requests: 2\n"+countThen)
	var all []*collector
	for range 50 {
		req := number(b, 9)
		req.Async = true
		g := &collector{done: make(chan error, 1)}
		all = append(all, g)
		x.Submit(t.Context(), req, g)
	}
	for _, g := range all {
		if err := <-g.done; err != nil || len(g.responses) != 9 {
			t.Errorf("%v, %d responses, want 9", err, len(g.responses))
		}
	}
	if most.Load() > 2 {
		t.Errorf("%d requests at a time, want at most 2", most.Load())
	}
}

// TestInflightCancelled checks that a cancelled request stops waiting for a credit.
func TestInflightCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open, begun := make(chan struct{}), make(chan struct{}, 2)
	models := fakes{"next": {sig: signature("next", 1, 8), queued: true, alone: true, instances: 1, run: func(b *backends.Batch) error {
		begun <- struct{}{}
		<-open
		return share(b)
	}}}
	x, _ := b.ensemble(t, models, "ONE", "OUT", `max_inflight_requests: 1
step { model_name: "next" model_version: -1 input_map { key: "INPUT0" value: "ONE" } output_map { key: "OUTPUT0" value: "OUT" } }`)
	ask := func(ctx context.Context) *responseSink {
		req := infer.NewRequest()
		req.Inputs = append(req.Inputs, infer.Named{Name: "ONE", Tensor: b.floats([]float32{1})})
		req.Async = true
		a := newResponseSink()
		x.Submit(ctx, req, a)
		return a
	}
	first := ask(t.Context())
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	late, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	second, third, fourth := ask(ctx), ask(t.Context()), ask(late)
	cancel()
	<-second.done
	<-fourth.done
	if status.CodeOf(second.err) != status.Cancelled || first.closed.Load() || third.closed.Load() {
		t.Errorf("%v, want a cancellation while the others are active", second.err)
	}
	if !errors.Is(fourth.err, status.ErrDeadline) {
		t.Errorf("%v, want %v", fourth.err, status.ErrDeadline)
	}
	close(open)
	for _, a := range []*responseSink{first, third} {
		if <-a.done; a.err != nil {
			t.Error(a.err)
			continue
		}
		a.resp.Release()
	}
}

// TestStepIsHeldBack checks how far a decoupled step may run ahead of the next one.
func TestStepIsHeldBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var sent, done atomic.Int32
	many := counts()
	many.run = func(b *backends.Batch) error {
		for range 1000 {
			out, err := tensor.New(b.Allocator, tensor.FP32, tensor.Of(1, 1))
			if err != nil {
				return err
			}
			if err := b.Send(0, []tensor.Tensor{out}, false); err != nil {
				return err
			}
			sent.Add(1)
		}
		return nil
	}
	models := fakes{"count": many, "next": {sig: signature("next", 1, 8), queued: true, alone: true, run: func(b *backends.Batch) error {
		if ahead := sent.Load() - done.Add(1); ahead > 4 {
			return status.Errorf(status.Internal, "%d ahead", ahead)
		}
		return share(b)
	}}}
	x, _ := b.ensemble(t, models, "N", "OUT", "max_inflight_requests: 3\n"+countThen)
	g := &collector{done: make(chan error, 1)}
	x.Submit(t.Context(), number(b, 1), g)
	if err := <-g.done; err != nil || len(g.responses) != 1000 {
		t.Errorf("%v, %d responses", err, len(g.responses))
	}
}

// TestSlowClientsAreAlone checks that many clients which do not read delay no other client of the same model
// instance.
func TestSlowClientsAreAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sig := signature("m", 1, 8)
	sig.Decoupled = true
	x := b.executor(plan.Single(sig), direct.New(direct.Settings{
		Runner: b.runner(sig), Instances: []backends.Instance{model(count)}, Shared: true, Workers: b.workers,
	}))
	ctx, cancel := context.WithCancel(t.Context())
	var slow []*stream
	for range 64 {
		req := b.request(100)
		req.Async = true
		s := &stream{room: make(chan struct{}), done: make(chan error, 1)}
		slow = append(slow, s)
		x.Submit(ctx, req, s)
	}
	for range 3 {
		fast := &stream{done: make(chan error, 1)}
		req := b.request(5)
		req.Async = true
		x.Submit(t.Context(), req, fast)
		if err := <-fast.done; err != nil || len(fast.values) != 5 {
			t.Errorf("%v, %d responses, want 5", err, len(fast.values))
		}
	}
	cancel()
	for _, s := range slow {
		if err := <-s.done; status.CodeOf(err) != status.Cancelled {
			t.Errorf("%v, want a cancellation", err)
		}
	}
	fast := &stream{done: make(chan error, 1)}
	x.Submit(t.Context(), b.request(5), fast)
	if err := <-fast.done; err != nil {
		t.Error(err)
	}
}

// TestStepsResequence checks that a step can change the sequence of later steps and of the response.
func TestStepsResequence(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var saw [2]infer.Sequence
	note := func(i int, reply infer.Params) model {
		return func(b *backends.Batch) error {
			saw[i] = b.Requests[0].Meta.Sequence
			b.Requests[0].ResponseParams = reply
			return share(b)
		}
	}
	models := fakes{
		"first": {sig: signature("first", 1, 8), run: note(0, infer.Params{
			{Key: "sequence_id", Kind: infer.ParamInt, Int: 7},
			{Key: "sequence_end", Kind: infer.ParamBool, Bool: true},
			{Key: "other", Kind: infer.ParamInt, Int: 1},
		})},
		"next": {sig: signature("next", 1, 8), run: note(1, nil)},
	}
	x, _ := b.ensemble(t, models, "N", "OUT", `
step { model_name: "first" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "MID" } }
step { model_name: "next" model_version: -1 input_map { key: "INPUT0" value: "MID" } output_map { key: "OUTPUT0" value: "OUT" } }`)
	req := number(b, 1)
	req.Sequence = infer.Sequence{ID: 3, Start: true}
	a := submit(t.Context(), x, req)
	if a.err != nil {
		t.Fatal(a.err)
	}
	want := infer.Sequence{ID: 7, Start: true, End: true}
	if saw[0] != (infer.Sequence{ID: 3, Start: true}) || saw[1] != want || a.resp.Sequence != want || len(a.resp.Params) != 0 {
		t.Errorf("the steps saw %v, the response has %v and %v", saw, a.resp.Sequence, a.resp.Params)
	}
	a.resp.Release()
}

// TestResponseParameters checks the parameters that a model adds to its responses.
// shows: infer.reply_parameters
func TestResponseParameters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	params := infer.Params{{Key: "tokens", Kind: infer.ParamInt, Int: 5}}
	for name, decoupled := range map[string]bool{"once": false, "several": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sig := signature("m", 1, 8)
			sig.Decoupled = decoupled
			a := submit(t.Context(), single(b, sig, false, func(b *backends.Batch) error {
				if decoupled {
					return b.SendParams(0, []tensor.Tensor{b.In[0].Retain()}, params, true)
				}
				b.Requests[0].ResponseParams = params
				return share(b)
			}), b.request(1))
			if a.err != nil {
				t.Fatal(a.err)
			}
			if diff := cmp.Diff(params, a.resp.Params); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			a.resp.Release()
		})
	}
}

// TestSubRunAllocs checks the allocation budget of sub-runs. It is not parallel: it counts the allocations of the
// process.
func TestSubRunAllocs(t *testing.T) {
	bn := budgetBench(t)
	n := 0
	out := make([]tensor.Tensor, 1)
	many := counts()
	many.run = func(b *backends.Batch) error {
		for range n {
			out[0] = b.In[0].Retain()
			if err := b.Send(0, out, false); err != nil {
				return err
			}
		}
		return nil
	}
	models := fakes{"count": many, "next": {sig: signature("next", 1, 8), run: share}}
	x, _ := bn.ensemble(t, models, "N", "OUT", countThen)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	ask := func() {
		call := infer.NewCall()
		x.Submit(t.Context(), number(bn, 1), call)
		resp, err := call.Wait()
		if err != nil {
			t.Error(err)
			return
		}
		resp.Release()
	}
	n = 1
	few := testing.AllocsPerRun(100, ask)
	n = 101
	if most := testing.AllocsPerRun(100, ask); most > few {
		t.Errorf("%v allocations for 101 responses, %v for one", most, few)
	}
}
