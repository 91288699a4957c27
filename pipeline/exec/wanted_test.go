package exec_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// TestWantedOutputs checks the requested outputs of an instance: the client's for a plain model, the mapped ones
// for a step of an ensemble.
func TestWantedOutputs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var saw [][]string
	note := func(b *backends.Batch) error {
		saw = append(saw, slices.Clone(b.Requests[0].RequestedOutputs))
		return share(b)
	}
	x := single(b, signature("m", 2, 8), false, note)
	for _, names := range [][]string{nil, {"OUTPUT1"}} {
		req := b.request(1)
		req.Inputs = append(req.Inputs, infer.Named{Name: "INPUT1", Tensor: b.floats([]float32{2})})
		req.Outputs = append(req.Outputs, names...)
		release(t, submit(t.Context(), x, req))
	}
	e, _ := b.ensemble(t, fakes{"m": {sig: signature("m", 2, 8), run: note}, "last": {sig: signature("last", 1, 8), run: note}}, "N", "OUT", `
step { model_name: "m" model_version: -1 input_map [{ key: "INPUT0" value: "N" }, { key: "INPUT1" value: "N" }] output_map { key: "OUTPUT1" value: "MID" } }
step { model_name: "last" model_version: -1 input_map { key: "INPUT0" value: "MID" } output_map { key: "OUTPUT0" value: "OUT" } }`)
	release(t, submit(t.Context(), e, number(b, 1)))
	if diff := cmp.Diff([][]string{nil, {"OUTPUT1"}, {"OUTPUT1"}, nil}, saw, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("wanted outputs (-want +got):\n%s", diff)
	}
}

func release(t *testing.T, a *responseSink) {
	t.Helper()
	if a.err != nil {
		t.Fatal(a.err)
	}
	a.resp.Release()
}

// TestModelSaysCancelled checks that the error text of a model survives when the model returns Cancelled and its
// client has not disconnected.
func TestModelSaysCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gone := func(b *backends.Batch) error {
		b.Requests[0].Err = status.Errorf(status.Cancelled, "gave up")
		return nil
	}
	plain := submit(t.Context(), single(b, signature("m", 1, 8), false, gone), b.request(1))
	e, _ := b.ensemble(t, fakes{"m": {sig: signature("m", 1, 8), run: gone}}, "N", "OUT", `
step { model_name: "m" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "OUT" } }`)
	step := submit(t.Context(), e, number(b, 1))
	for want, a := range map[string]*responseSink{"gave up": plain, "in ensemble 'e', gave up": step} {
		if status.CodeOf(a.err) != status.Cancelled || status.Text(a.err) != want {
			t.Errorf("error %v, want the text %q", a.err, want)
		}
	}
}
