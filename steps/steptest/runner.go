package steptest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// runner runs the step of one case.
type runner struct {
	c    *Case
	sig  *config.Signature
	step steps.Step
}

// result is the outcome of one request of a batch.
type result struct {
	out []Value
	err error
}

// batch runs requests as one batch and returns the result of each; err is that of the whole batch.
func (r *runner) batch(ctx context.Context, t *testing.T, a tensor.Allocator, requests []Request) (results []result, err error) {
	t.Helper()
	b := &backends.Batch{Allocator: a, Rows: 1, Out: make([]tensor.Tensor, len(r.sig.Outputs))}
	pool, rows := tensor.NewPool(), 0
	for i := range requests {
		n := r.rows(&requests[i])
		b.Requests = append(b.Requests, backends.Request{Meta: &infer.Meta{}, Ctx: ctx, First: rows, Rows: n})
		rows += n
	}
	if r.c.MaxBatch > 0 {
		b.Rows = rows
	}
	for port := range r.sig.Inputs {
		in, err := gather(pool, requests, port)
		if err != nil {
			t.Fatal(err)
		}
		b.In = append(b.In, in)
	}
	defer func() {
		for i := range b.In {
			b.In[i].Release()
		}
		tensor.ReleaseAll(b.Out)
		for i := range b.Requests {
			tensor.ReleaseAll(b.Requests[i].Out)
		}
		if p := recover(); p != nil {
			t.Errorf("the step panicked: %v", p)
			err = errors.New("panic")
		}
	}()
	if err = r.step.Run(ctx, b); err != nil {
		return nil, err
	}
	for i := range b.Requests {
		if q := &b.Requests[i]; q.Out != nil {
			checkOutputs(t, r, q.Out, q.Rows, true)
		} else if q.Err == nil || anyPresent(b.Out) {
			checkOutputs(t, r, b.Out, rows, false)
		}
		results = append(results, r.scatter(b, i))
	}
	return results, nil
}

// anyPresent reports whether the batch has outputs.
func anyPresent(out []tensor.Tensor) bool {
	return slices.ContainsFunc(out, func(t tensor.Tensor) bool { return t.Present() })
}

// rows returns the number of rows of a request.
func (r *runner) rows(q *Request) int {
	if r.c.MaxBatch == 0 {
		return 1
	}
	for _, v := range q.Inputs {
		if len(v.Dims) > 0 {
			return int(v.Dims[0])
		}
	}
	return 0
}

// gather joins the values of all requests to one input.
func gather(a tensor.Allocator, requests []Request, port int) (tensor.Tensor, error) {
	if port >= len(requests[0].Inputs) || requests[0].Inputs[port].DType == tensor.Invalid {
		return tensor.Tensor{}, nil
	}
	v := requests[0].Inputs[port]
	shape, data := tensor.Of(v.Dims...), v.Data
	for _, q := range requests[1:] {
		data = append(slices.Clip(data), q.Inputs[port].Data...)
		shape.SetDim(0, shape.Dim(0)+q.Inputs[port].Dims[0])
	}
	t, err := tensor.NewBytes(a, shape, len(data))
	if err != nil {
		return t, err
	}
	t.DType = v.DType
	copy(t.Bytes(), data)
	return t, nil
}

// scatter copies the outputs of request i.
func (r *runner) scatter(b *backends.Batch, i int) result {
	q := &b.Requests[i]
	if q.Err != nil {
		return result{err: q.Err}
	}
	var out []Value
	list := b.Out
	if q.Out != nil {
		list = q.Out
	}
	for j := range list {
		t := &list[j]
		if !t.Present() {
			out = append(out, Value{})
			continue
		}
		v := Value{DType: t.DType, Dims: append([]int64(nil), t.Shape.Dims()...), Data: t.Bytes()}
		if r.c.MaxBatch > 0 && q.Out == nil {
			v = part(v, q.First, q.Rows)
		}
		v.Data = append([]byte(nil), v.Data...)
		out = append(out, v)
	}
	return result{out: out}
}

// part returns rows of a value.
func part(v Value, first, rows int) Value {
	total := int(v.Dims[0])
	v.Dims[0] = int64(rows)
	if v.DType != tensor.Bytes {
		if total > 0 {
			size := len(v.Data) / total
			v.Data = v.Data[first*size : (first+rows)*size]
		}
		return v
	}
	per := 1
	for _, d := range v.Dims[1:] {
		per *= int(d)
	}
	start := skip(v.Data, first*per)
	rest := v.Data[start:]
	v.Data = rest[:skip(rest, rows*per)]
	return v
}

// skip returns the length of n BYTES elements in bytes.
func skip(data []byte, n int) int {
	rest := data
	for range n {
		_, next, ok := tensor.NextBytes(rest)
		if !ok {
			return len(data)
		}
		rest = next
	}
	return len(data) - len(rest)
}
