package sequence

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// instance holds the sums of its sequences, unless the configuration declares a state for them.
type instance struct {
	*model
	byRow []int32
	byID  map[string]int32
}

// Execute adds each row's input to its sum, or decrements its count. Sums wrap around like INT32.
func (x *instance) Execute(_ context.Context, b *backends.Batch) error {
	in := tensor.Slice[int32](&b.In[0])
	start, ready := tensor.Slice[int32](&b.In[x.start]), tensor.Slice[int32](&b.In[x.ready])
	out, err := x.outputs(b)
	if err != nil {
		return err
	}
	ids := x.ids(b)
	for row := range in {
		var id []byte
		if x.corrid >= 0 {
			id, ids = x.id(b, ids)
		}
		old := x.sum(b, row, id, start[row] != 0)
		var sum int32
		if ready[row] != 0 {
			sum = x.next(b, row, in[row], old)
			x.keep(b, row, id, sum)
		}
		if err := out.set(b, row, sum, ready[row] != 0); err != nil {
			return err
		}
	}
	return nil
}

// next returns the new sum, or the remaining count of a countdown.
func (x *instance) next(b *backends.Batch, row int, in, old int32) int32 {
	if !x.countdown {
		return old + in
	}
	if old <= 0 {
		old = in
	}
	if old <= 0 {
		b.Fail(row, status.Errorf(status.InvalidArg, "input 'INPUT' of model '%s' is %d, expected how often to execute the request, at least 1", x.sig.Model, in))
		return 0
	}
	if old > 1 {
		b.Reschedule(row)
	}
	return old - 1
}

// sum returns the stored sum of a row's sequence. A state already has the initial value when a sequence starts.
func (x *instance) sum(b *backends.Batch, row int, id []byte, start bool) int32 {
	switch {
	case x.state >= 0:
		return tensor.Slice[int32](&b.In[x.state])[row]
	case start:
		return 0
	case x.corrid >= 0:
		return x.byID[string(id)]
	case row < len(x.byRow):
		return x.byRow[row]
	default:
		return 0
	}
}

// keep stores the sum of a row's sequence, or deletes it after the sequence's end.
func (x *instance) keep(b *backends.Batch, row int, id []byte, sum int32) {
	switch ended := x.end >= 0 && tensor.Slice[int32](&b.In[x.end])[row] != 0; {
	case x.state >= 0:
	case x.corrid < 0:
		for len(x.byRow) <= row {
			x.byRow = append(x.byRow, 0)
		}
		x.byRow[row] = sum
	case ended && (!x.countdown || sum <= 0):
		delete(x.byID, string(id))
	default:
		x.byID[string(id)] = sum
	}
}

// ids returns the bytes of the correlation ids, nil without CORRID.
func (x *instance) ids(b *backends.Batch) []byte {
	if x.corrid < 0 {
		return nil
	}
	return b.In[x.corrid].Bytes()
}

// id splits the next correlation id from the rest.
func (x *instance) id(b *backends.Batch, ids []byte) (one, rest []byte) {
	if size := b.In[x.corrid].DType.Size(); size > 0 {
		return ids[:size], ids[size:]
	}
	one, rest, _ = tensor.NextBytes(ids)
	return one, rest
}

// results receives a batch's sums: its outputs, or responses of a decoupled model.
type results struct {
	*model
	out, state []int32
}

func (x *instance) outputs(b *backends.Batch) (r results, err error) {
	r.model = x.model
	if x.sig.Decoupled {
		return r, nil
	}
	out, err := b.Alloc(0, tensor.Int32, b.In[0].Shape)
	if err != nil {
		return r, err
	}
	r.out = tensor.Slice[int32](out)
	if x.state >= 0 {
		if out, err = b.AllocInPlace(1, tensor.Int32, b.In[x.state].Shape); err != nil {
			return r, err
		}
		r.state = tensor.Slice[int32](out)
	}
	return r, nil
}

// set stores the sum of a row in the outputs, or sends it. It sends nothing for a row that is not ready or has
// failed.
func (r *results) set(b *backends.Batch, row int, sum int32, ready bool) error {
	if !r.sig.Decoupled {
		if r.out[row] = sum; r.state != nil {
			r.state[row] = sum
		}
		return nil
	}
	if !ready || !succeeded(&b.Requests[row]) {
		return nil
	}
	response := make([]tensor.Tensor, len(r.sig.Outputs))
	shape := b.In[0].Shape
	shape.SetDim(0, 1)
	for i := range response {
		t, err := tensor.New(b.Allocator, tensor.Int32, shape)
		if err != nil {
			tensor.ReleaseAll(response)
			return err
		}
		tensor.Slice[int32](&t)[0] = sum
		response[i] = t
	}
	send(b, row, response)
	return nil
}

// succeeded reports whether a request has not failed so far.
func succeeded(q *backends.Request) bool { return q.Err == nil }

// send sends the response of a row. If the response cannot be sent, only that row fails.
func send(b *backends.Batch, row int, response []tensor.Tensor) {
	if err := b.Send(row, response, !b.Requests[row].Rescheduled); err != nil {
		b.Fail(row, err)
	}
}

// Close does nothing.
func (*instance) Close() error { return nil }
