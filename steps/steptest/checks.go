package steptest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

// check compares the result of a request with the expected one.
func (r *runner) check(t *testing.T, q *Request, got result) {
	t.Helper()
	if q.WantErr != "" {
		if got.err == nil || !strings.Contains(got.err.Error(), q.WantErr) {
			t.Errorf("request failed with %v, expected an error that contains %q", got.err, q.WantErr)
		}
		return
	}
	if got.err != nil {
		t.Errorf("request failed: %v", got.err)
		return
	}
	for i, want := range q.Want {
		if want.DType == tensor.Invalid {
			continue
		}
		if d := differ(want, got.out[i], r.c.Tolerance); d != "" {
			t.Errorf("output '%s' %s", r.sig.Outputs[i].Name, d)
		}
	}
}

func (r *runner) alone(t *testing.T) {
	for i := range r.c.Requests {
		t.Run(fmt.Sprint("request ", i), func(t *testing.T) {
			a := tensortest.NewChecked(t, nil)
			results, err := r.batch(t.Context(), t, a, r.c.Requests[i:i+1])
			if err != nil {
				t.Fatal(err)
			}
			r.check(t, &r.c.Requests[i], results[0])
		})
	}
}

// together runs requests whose tensors fit together as one batch: each must fail or succeed as
// it did alone, with the same values where the batch does not change the shape.
func (r *runner) together(t *testing.T) {
	group := r.group()
	if len(group) < 2 {
		t.Skip("the case has no two requests that fit into one batch")
	}
	results, err := r.batch(t.Context(), t, tensortest.NewChecked(t, nil), group)
	if err != nil {
		t.Fatal(err)
	}
	for i := range group {
		q := group[i]
		if results[i].err == nil && q.WantErr == "" {
			q.Want = sameShape(q.Want, results[i].out)
		}
		r.check(t, &q, results[i])
	}
}

// sameShape removes expected values whose shape the batch changed by padding.
func sameShape(want, got []Value) []Value {
	var out []Value
	for i := range want {
		if fmt.Sprint(want[i].Dims) == fmt.Sprint(got[i].Dims) {
			out = append(out, want[i])
		} else {
			out = append(out, Value{})
		}
	}
	return out
}

// group returns the requests whose inputs fit together with those of the first one, up to the
// batch size.
func (r *runner) group() []Request {
	var out []Request
	rows := 0
	for _, q := range r.c.Requests {
		if rows += r.rows(&q); r.c.MaxBatch == 0 || rows > r.c.MaxBatch {
			break
		}
		if len(out) > 0 && !fits(out[0].Inputs, q.Inputs) {
			rows -= r.rows(&q)
			continue
		}
		out = append(out, q)
	}
	return out
}

func fits(a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].DType != b[i].DType || len(a[i].Dims) != len(b[i].Dims) {
			return false
		}
		if len(a[i].Dims) > 1 && fmt.Sprint(a[i].Dims[1:]) != fmt.Sprint(b[i].Dims[1:]) {
			return false
		}
	}
	return true
}

func (r *runner) concurrent(t *testing.T) {
	a := tensortest.NewChecked(t, nil)
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 2 * len(r.c.Requests) {
				q := (g + i) % len(r.c.Requests)
				results, err := r.batch(t.Context(), t, a, r.c.Requests[q:q+1])
				if err != nil {
					t.Error(err)
					return
				}
				r.check(t, &r.c.Requests[q], results[0])
			}
		})
	}
	group.Wait()
}

// cancelled checks that the step returns and releases its memory.
func (r *runner) cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range r.c.Requests {
		_, err := r.batch(ctx, t, tensortest.NewChecked(t, nil), r.c.Requests[i:i+1])
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled batch failed with %v, expected nothing or the context's error", err)
		}
	}
}

// limited is an allocator that fails after a number of buffers.
type limited struct {
	tensor.Allocator
	left    int
	refused bool
}

var errNoMemory = errors.New("no memory left")

func (p *limited) Alloc(n int) (*tensor.Buffer, error) {
	if p.left == 0 {
		p.refused = true
		return nil, errNoMemory
	}
	p.left--
	return p.Allocator.Alloc(n)
}

func (r *runner) noMemory(t *testing.T) {
	for left := range r.sig.Outputs {
		for i := range r.c.Requests {
			a := &limited{Allocator: tensortest.NewChecked(t, nil), left: left}
			_, err := r.batch(t.Context(), t, a, r.c.Requests[i:i+1])
			if a.refused && !errors.Is(err, errNoMemory) && r.c.Requests[i].WantErr == "" {
				t.Errorf("with memory for %d outputs the step returned %v, expected %v", left, err, errNoMemory)
			}
		}
	}
}

// randomData changes the content of tensors. It keeps shapes and sizes, and the lengths of BYTES
// elements, which a step may rely on.
func (r *runner) randomData(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range r.c.Requests {
		for range 8 {
			q := Request{Inputs: append([]Value(nil), r.c.Requests[i].Inputs...)}
			for j := range q.Inputs {
				q.Inputs[j].Data = scramble(rng, q.Inputs[j])
			}
			// any result but a panic or a leak is accepted
			_, err := r.batch(t.Context(), t, tensortest.NewChecked(t, nil), []Request{q})
			if err != nil {
				t.Logf("batch failed: %v", err)
			}
		}
	}
}

func scramble(rng *rand.Rand, v Value) []byte {
	out := append([]byte(nil), v.Data...)
	for i := 0; i < len(out); {
		if v.DType == tensor.Bytes {
			elem, _, _ := tensor.NextBytes(out[i:])
			for j := range elem {
				elem[j] = byte(rng.Uint32())
			}
			i += tensor.EncodedLen(len(elem))
			continue
		}
		out[i] = byte(rng.Uint32())
		i++
	}
	return out
}

// empty sets each variable dimension, and the batch dimension, to 0 in turn.
func (r *runner) empty(t *testing.T) {
	if len(r.c.Requests) == 0 {
		t.Skip("the case has no requests")
	}
	first := r.c.Requests[0].Inputs
	for axis := range 4 {
		q, changed := Request{}, false
		for j, v := range first {
			full := r.sig.Inputs[j].FullDims(r.c.MaxBatch)
			if axis < len(v.Dims) && full.Dim(axis) == -1 {
				v.Dims = append([]int64(nil), v.Dims...)
				v.Dims[axis], v.Data, changed = 0, nil, true
			}
			q.Inputs = append(q.Inputs, v)
		}
		if changed {
			if _, err := r.batch(t.Context(), t, tensortest.NewChecked(t, nil), []Request{q}); err != nil {
				t.Logf("axis %d empty: %v", axis, err)
			}
		}
	}
}
