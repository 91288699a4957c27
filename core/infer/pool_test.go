package infer_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

// rounds is the number of reuses of a pooled value. With the race detector, pools drop some values.
const rounds = 20

// named returns a named tensor. It fails the test on an error.
func named(tb testing.TB, a tensor.Allocator, name string) infer.Named {
	tb.Helper()
	x, err := tensor.New(a, tensor.Int8, tensor.Of(3))
	if err != nil {
		tb.Fatal(err)
	}
	return infer.Named{Name: name, Tensor: x}
}

// whole returns the list up to its capacity.
func whole[T any](list []T) []T { return list[:cap(list)] }
func blank[T any](list []T) []T { return make([]T, cap(list)) }

// strictly compares buffers by identity. It treats a list without capacity as empty.
var strictly = cmp.Options{cmpopts.EquateEmpty(), cmp.AllowUnexported(infer.Request{}), cmp.Comparer(func(a, b *tensor.Buffer) bool { return a == b })}

func fill(tb testing.TB, r *infer.Request, a tensor.Allocator) {
	tb.Helper()
	r.ID, r.Model, r.Version, r.Priority, r.Timeout = "id", "m", 3, 4, 5
	r.Sequence = infer.Sequence{ID: 6, Name: "s", Start: true, End: true}
	r.Params = append(r.Params, infer.Param{Key: "k", Kind: infer.ParamString, String: "v"}, infer.Param{Key: "l"})
	r.Inputs = append(r.Inputs, named(tb, a, "X"), named(tb, a, "Y"), infer.Named{Name: "absent"})
	r.Outputs = append(r.Outputs, "P", "Q")
}

func TestRequestReuse(t *testing.T) {
	t.Parallel()
	a := tensortest.NewChecked(t, nil)
	for range rounds {
		r := infer.NewRequest()
		want := &infer.Request{
			Meta: infer.Meta{Params: blank(r.Params)}, Inputs: blank(r.Inputs), Outputs: blank(r.Outputs),
		}
		got := *r
		got.Params, got.Inputs, got.Outputs = whole(r.Params), whole(r.Inputs), whole(r.Outputs)
		if len(r.Params)+len(r.Inputs)+len(r.Outputs) != 0 {
			t.Errorf("not empty: %+v", r)
		}
		if diff := cmp.Diff(want, &got, strictly); diff != "" {
			t.Fatalf("the request before left something behind (-want +got):\n%s", diff)
		}
		fill(t, r, a)
		if x := r.Input("Y"); x != &r.Inputs[1].Tensor || r.Input("Z") != nil || r.Input("") != nil {
			t.Error("Input finds another tensor")
		}
		moved := r.Inputs[0].Tensor.Move()
		r.Release()
		if a.Held() != 1 {
			t.Errorf("%d tensors are held after Release, want the one that moved", a.Held())
		}
		moved.Release()
	}
}

func TestResponseReuse(t *testing.T) {
	t.Parallel()
	a := tensortest.NewChecked(t, nil)
	for range rounds {
		r := infer.NewResponse()
		got := *r
		got.Params, got.Outputs = whole(r.Params), whole(r.Outputs)
		if len(r.Params)+len(r.Outputs) != 0 {
			t.Errorf("not empty: %+v", r)
		}
		if diff := cmp.Diff(infer.Response{Params: blank(r.Params), Outputs: blank(r.Outputs)}, got, strictly); diff != "" {
			t.Fatalf("the response before left something behind (-want +got):\n%s", diff)
		}
		r.ID, r.Model, r.Version, r.Ensemble = "id", "m", 3, true
		r.Params = append(r.Params, infer.Param{Key: "k"})
		r.Outputs = append(r.Outputs, named(t, a, "P"), named(t, a, "Q"))
		if r.Output("Q") != &r.Outputs[1].Tensor || r.Output("R") != nil {
			t.Error("Output finds another tensor")
		}
		r.Release()
		if a.Held() != 0 {
			t.Errorf("%d tensors are held after Release", a.Held())
		}
	}
}

var errFailed = errors.New("failed")

// TestCall checks calls that are closed before Wait, and concurrently with it.
func TestCall(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		responses int // number of responses
		err       error
	}{
		{"response", 1, nil},
		{"the last response", 3, nil},
		{"no response", 0, nil},
		{"failure", 0, errFailed},
		{"response, then failure", 2, errFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := tensortest.NewChecked(t, nil)
			for i := range 10 * rounds {
				c := infer.NewCall()
				run := func() {
					for n := range tt.responses {
						r := infer.NewResponse()
						r.Version = int64(n)
						r.Outputs = append(r.Outputs, named(t, a, "P"))
						c.Send(r)
					}
					c.Close(tt.err)
				}
				if i%2 == 0 {
					run()
				} else {
					go run()
				}
				checkResponse(t, c, tt.responses, tt.err)
				if a.Held() != 0 {
					t.Fatalf("%d tensors are held after the call", a.Held())
				}
			}
		})
	}
}

// checkResponse waits for c, which got responses numbered from 0 and was closed with want.
func checkResponse(t *testing.T, c *infer.Call, responses int, want error) {
	t.Helper()
	r, err := c.Wait()
	if !errors.Is(err, want) || (r != nil) != (responses > 0 && want == nil) {
		t.Fatalf("response %v, error %v; want %d responses, error %v", r, err, responses, want)
	}
	if r == nil {
		return
	}
	if r.Version != int64(responses-1) || !r.Output("P").Present() {
		t.Errorf("response %d, want the last, %d", r.Version, responses-1)
	}
	r.Release()
}
