package exec_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/exec"
)

// sequence sends one request of a sequence.
func (b *bench) sequence(x infer.Inferer, q infer.Sequence, values ...float32) *gathering {
	g := &gathering{done: make(chan error, 1)}
	req := infer.NewRequest()
	req.Sequence, req.Async = q, true
	req.Inputs = append(req.Inputs, infer.Named{Name: "N", Tensor: b.floats(values)})
	x.Submit(context.Background(), req, g)
	return g
}

const inputSteps = `step { model_name: "total" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "OUT" } }`

// TestInputStreams checks windows over the requests of sequences.
func TestInputStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, _ := b.ensemble(t, fakes{"total": total("total", 1)}, "N", "OUT", inputSteps, "step.total.window=4", "step.total.stride=2")
	calls := []struct {
		q    infer.Sequence
		n    []float32
		want series
	}{
		{infer.Sequence{ID: 1, Start: true}, []float32{1, 2, 3}, nil},
		{infer.Sequence{Name: "other", Start: true}, []float32{10, 20, 30, 40, 50}, series{{100, 4}}},
		{infer.Sequence{ID: 1}, []float32{4, 5, 6, 7, 8}, series{{10, 4}, {18, 4}, {26, 4}}},
		{infer.Sequence{Name: "other"}, []float32{60}, series{{180, 4}}},
		{infer.Sequence{ID: 1, End: true}, []float32{9}, series{{24, 3}}},
		{infer.Sequence{ID: 1, Start: true}, []float32{1}, nil},
		{infer.Sequence{ID: 1, Start: true, End: true}, []float32{2, 3}, series{{5, 2}}},
	}
	for _, c := range calls {
		g := b.sequence(x, c.q, c.n...)
		err := <-g.done
		if diff := cmp.Diff(c.want, g.rows); diff != "" || err != nil {
			t.Errorf("%v: %v (-want +got):\n%s", c.q, err, diff)
		}
	}
	g := b.sequence(x, infer.Sequence{ID: 1}, 1)
	if err := <-g.done; err == nil || !strings.Contains(err.Error(), "must specify the START flag") {
		t.Error(err)
	}
	if err := x.Drain(t.Context()); err != nil { // "other" is open: nothing of it may be left
		t.Error(err)
	}
}

// TestInputStreamFailures checks that a stream goes on behind a request that failed before its piece was added, and after one whose piece does
// not fit.
func TestInputStreamFailures(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hold, entered := make(chan struct{}), make(chan struct{}, 1)
	pass := fake{sig: signature("pass", 1, 8), queued: true, alone: true, run: func(b *backends.Batch) error {
		if tensor.Slice[float32](&b.In[0])[0] < 0 {
			entered <- struct{}{}
			<-hold
			return errors.New("no")
		}
		return share(b)
	}, instances: 1}
	x, _ := b.ensemble(t, fakes{"pass": pass, "total": total("total", 1)}, "N", "OUT", `
step { model_name: "pass" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "M" } }
step { model_name: "total" model_version: -1 input_map { key: "INPUT0" value: "M" } output_map { key: "OUTPUT0" value: "OUT" } }`, "step.total.window=2")
	first := b.sequence(x, infer.Sequence{ID: 5, Start: true}, 1)
	bad := b.sequence(x, infer.Sequence{ID: 5}, -1)
	<-entered
	last := b.sequence(x, infer.Sequence{ID: 5, End: true}, 2, 3)
	close(hold)
	if err := <-first.done; err != nil {
		t.Error(err)
	}
	if err := <-bad.done; err == nil {
		t.Error("the failed request succeeded")
	}
	err := <-last.done
	if diff := cmp.Diff(series{{3, 2}, {3, 1}}, last.rows); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestInputStreamRoom checks that what input streams keep is bounded, and is nothing in the end.
func TestInputStreamRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, _ := b.ensemble(t, fakes{"total": total("total", 1)}, "N", "OUT", inputSteps, "step.total.window=4")
	exec.SetInputBytes(x, 20)
	first := b.sequence(x, infer.Sequence{ID: 1, Start: true}, 1, 2, 3)
	if err := <-first.done; err != nil || exec.InputBytes(x) != 12 {
		t.Errorf("%d bytes, %v", exec.InputBytes(x), err)
	}
	refused := b.sequence(x, infer.Sequence{ID: 2, Start: true}, 1, 2, 3)
	if err := <-refused.done; status.CodeOf(err) != status.Unavailable {
		t.Error(err)
	}
	last := b.sequence(x, infer.Sequence{ID: 1, End: true}, 4)
	err := <-last.done
	if diff := cmp.Diff(series{{10, 4}}, last.rows); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	again := b.sequence(x, infer.Sequence{ID: 2}, 1, 2, 3)
	if err := <-again.done; err != nil {
		t.Error(err)
	}
	if err := x.Drain(t.Context()); err != nil || exec.InputBytes(x) != 0 {
		t.Errorf("%d bytes, %v", exec.InputBytes(x), err)
	}
}

// TestEarlyOutputs checks that outputs are sent as soon as they are known, and that clients which take one response get one.
func TestEarlyOutputs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hold := make(chan struct{})
	late := fake{sig: signature("late", 1, 8), queued: true, alone: true, run: func(b *backends.Batch) error {
		<-hold
		return share(b)
	}}
	x, _ := b.ensemble(t, fakes{"soon": {sig: signature("soon", 1, 8), run: add(1)}, "late": late}, "N", "SOON LATE", `
step { model_name: "soon" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "SOON" } }
step { model_name: "late" model_version: -1 input_map { key: "INPUT0" value: "SOON" } output_map { key: "OUTPUT0" value: "LATE" } }`, "ensemble.early_outputs=true")
	if x.Plan().Signature.Decoupled {
		t.Error("early outputs make an ensemble decoupled")
	}
	sink := &announcing{collector: collector{done: make(chan error, 1)}, sent: make(chan struct{}, 4)}
	req := number(b, 1)
	req.Async, req.Early = true, true
	x.Submit(t.Context(), req, sink)
	<-sink.sent
	close(hold)
	err := <-sink.done
	if diff := cmp.Diff([]results{{"SOON": 2}, {"LATE": 2}}, sink.responses); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	whole := &collector{done: make(chan error, 1)}
	req = number(b, 1)
	req.Async = true
	x.Submit(t.Context(), req, whole)
	err = <-whole.done
	if diff := cmp.Diff([]results{{"SOON": 2, "LATE": 2}}, whole.responses); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// announcing is a collector that tells of each response.
type announcing struct {
	collector
	sent chan struct{}
}

func (a *announcing) Send(r *infer.Response) {
	a.collector.Send(r)
	a.sent <- struct{}{}
}

// TestEarlyStreams checks that a stream responds before another one that is made of it.
func TestEarlyStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, _ := b.ensemble(t, fakes{"emit": emit("emit", upTo(1)), "total": total("total", 1)}, "N", "ROWS OUT", windowSteps, "step.total.window=2", "ensemble.early_outputs=true")
	g := &collector{done: make(chan error, 1)}
	req := number(b, 5)
	req.Async, req.Early = true, true
	x.Submit(t.Context(), req, g)
	err := <-g.done
	var rows, sums []float32
	for _, r := range g.responses {
		if v, there := r["ROWS"]; there {
			rows = append(rows, v)
		}
		if v, there := r["OUT"]; there {
			sums = append(sums, v)
		}
	}
	if diff := cmp.Diff([][]float32{{0, 1, 2, 3, 4}, {1, 5, 4}}, [][]float32{rows, sums}); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s\n%v", err, diff, g.responses)
	}
}

// TestEarlySharedOutput checks that an output which a stream reads, too, is sent once, and not with each response of that stream.
func TestEarlySharedOutput(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	models := fakes{"emit": emit("emit", upTo(1)), "soon": {sig: signature("soon", 1, 8), run: add(1)}, "total": total("total", 2)}
	x, _ := b.ensemble(t, models, "N", "SOON OUT", `
step { model_name: "soon" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "SOON" } }
step { model_name: "emit" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "ROWS" } }
step { model_name: "total" model_version: -1 input_map { key: "INPUT0" value: "ROWS" } input_map { key: "INPUT1" value: "SOON" } output_map { key: "OUTPUT0" value: "OUT" } }`,
		"ensemble.early_outputs=true")
	g := &collector{done: make(chan error, 1)}
	req := number(b, 3)
	req.Async, req.Early = true, true
	x.Submit(t.Context(), req, g)
	err := <-g.done
	want := []results{{"SOON": 4}, {"OUT": 4}, {"OUT": 5}, {"OUT": 6}}
	if diff := cmp.Diff(want, g.responses); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
