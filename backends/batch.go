package backends

import (
	"context"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Req is one member of a batch.
type Req struct {
	Meta *infer.Meta
	// Ctx is over when the client no longer waits.
	Ctx context.Context //nolint:containedctx // a member of a batch is a request in flight
	// Trace is the request's, nil for most, with the step and wave that this is of it.
	Trace      *tracing.Trace
	Step, Wave int32
	// First and Rows are its rows of the batch.
	First, Rows int
	// In are its own inputs as they were before they were joined, in Signature order: what the shapes of ragged ones are
	// known by. Borrowed; nil where nothing was joined.
	In []tensor.Tensor
	// Wanted are the names of the outputs that somebody reads, empty for all. A model may
	// leave out others. Borrowed.
	Wanted []string
	// Err, when set, fails this request only.
	Err error
	// Again, set by Reschedule, asks to execute this request once more.
	Again bool
	// Reply are the parameters of this request's answer, for the client. In an
	// ensemble, sequence_id, sequence_start and sequence_end also become those of the
	// steps that follow; others stay with the step.
	Reply infer.Params
	// Out, when not nil, are the outputs of this request alone, in Signature order, in
	// place of its rows of Batch.Out. They move; the list is borrowed. An output whose
	// port is Free may have any data type, shape and number of rows here, and in the
	// Batch.Out of one request.
	Out []tensor.Tensor
}

// Report records in the request's trace that the model did something, by a name: NAME_START and NAME_END are the ends of a
// span of its own where spans are exported. It does nothing for a request that is not traced.
func (r *Req) Report(name string) { r.Trace.Report(r.Step, name) }

// Batch is what an Instance executes at once.
type Batch struct {
	Reqs []Req
	// Rows is the batch dimension of every tensor when the model batches, else 1.
	Rows int
	// In holds the inputs in Signature order, rows of all requests together; an
	// optional input that is not given is absent. Borrowed: valid during Execute.
	In []tensor.Tensor
	// Out takes the outputs in Signature order. Set it through Alloc, AllocBytes or
	// SetOutput; an output left absent is a missing one.
	Out []tensor.Tensor
	// Allocator is where the outputs' memory comes from: the caller chose the place.
	Allocator tensor.Allocator
	// Over says, by output, which input's memory it may take over: one more than the
	// input's position, 0 for none. It is nil where there is none at all. See AllocOver.
	Over []int32
	// Host is where outputs on the host come from when Allocator is that of a device;
	// nil: Allocator.
	Host tensor.Allocator
	// Stream is where the work of an instance at a device goes, nil on the host. Its
	// inputs are ready for work put there, and what Execute leaves in it need not be
	// over when Execute returns: outputs are ready at the stream's end.
	Stream tensor.Stream
	// Answers takes what Send sends; nil unless the model is decoupled.
	Responses Responses
}

// Answers takes the answers of a decoupled model as they come.
type Responses interface {
	// Answer moves one answer to the i-th request of the batch: outputs in Signature
	// order, absent ones left out of the answer. params are borrowed. It waits while
	// the client is behind.
	Respond(i int, out []tensor.Tensor, params infer.Params, final bool) error
	// Detach frees the batch's instance for the next batch, once.
	Detach()
}

// Failer is an Answers that tells clients of errors while the batch is executed.
type Failer interface {
	Responses
	// Fail sends err to the client of the i-th request of the batch; final says that no response follows.
	Fail(i int, err error, final bool)
}

// Send answers the i-th request of the batch, as often as a decoupled model likes;
// final says that it was the last time. The outputs move, on every path. An error
// says that nobody wants further answers, or that this one is not what the model's
// signature promises; the request fails with it if the model returns it.
//
// A model that ends without having sent anything final has said with that alone that
// nothing follows. One whose configuration does not say decoupled may not send.
func (b *Batch) Send(i int, out []tensor.Tensor, final bool) error {
	return b.SendParams(i, out, nil, final)
}

// SendParams is Send of an answer with parameters, which are borrowed. See Req.Reply.
func (b *Batch) SendParams(i int, out []tensor.Tensor, params infer.Params, final bool) error {
	if b.Responses == nil {
		tensor.ReleaseAll(out)
		return status.Errorf(status.Unsupported,
			"the model answers several times, expected 'model_transaction_policy { decoupled: true }' in its configuration")
	}
	return b.Responses.Respond(i, out, params, final)
}

// SendError fails the i-th request of the batch. The first failure is kept, and the client of a decoupled model learns of it at
// once where that is possible: the other requests of the batch may take long. Responses may follow unless it is final.
func (b *Batch) SendError(i int, err error, final bool) {
	r := &b.Reqs[i]
	if r.Err != nil {
		return
	}
	r.Err = err
	if f, ok := b.Responses.(Failer); ok {
		f.Fail(i, err, final)
	}
}

// Detach tells the scheduler that the instance takes its next batch although responses of this one are still to come. A
// decoupled model may call it at most once, during Execute, which must still not return before the last response. Until
// then the instance must serve several calls of Execute at once. A model that is not decoupled cannot be detached: nothing
// happens.
func (b *Batch) Detach() {
	if b.Responses != nil {
		b.Responses.Detach()
	}
}

// Alloc makes output port an uncleared tensor of fixed-size elements and returns it,
// borrowed, to be filled.
func (b *Batch) Alloc(port int, d tensor.DType, s tensor.Shape) (*tensor.Tensor, error) {
	t, err := tensor.New(b.Allocator, d, s)
	if err != nil {
		return nil, err
	}
	b.SetOutput(port, t)
	return &b.Out[port], nil
}

// AllocOver is Alloc for a model that has read an element of its inputs by the time it
// writes the one of the same position: where the configuration lets a state's output
// use the memory of its input (use_same_buffer_for_input_output) and both are alike, it
// gets that. Memory at a device is not taken over: other streams may still read it.
func (b *Batch) AllocOver(port int, d tensor.DType, s tensor.Shape) (*tensor.Tensor, error) {
	if b.Over == nil || b.Over[port] == 0 {
		return b.Alloc(port, d, s)
	}
	in := &b.In[b.Over[port]-1]
	if !in.Present() || in.Buf.Place().Kind == tensor.Device || d == tensor.Bytes || in.DType != d || !in.Shape.Equal(s) {
		return b.Alloc(port, d, s)
	}
	b.SetOutput(port, in.Retain())
	return &b.Out[port], nil
}

// AllocBytes makes output port an uncleared BYTES tensor of n encoded bytes and
// returns it, borrowed, to be filled. It is always on the host.
func (b *Batch) AllocBytes(port int, s tensor.Shape, n int) (*tensor.Tensor, error) {
	alloc := b.Host
	if alloc == nil {
		alloc = b.Allocator
	}
	t, err := tensor.NewBytes(alloc, s, n)
	if err != nil {
		return nil, err
	}
	b.SetOutput(port, t)
	return &b.Out[port], nil
}

// SetOutput moves t to output port.
func (b *Batch) SetOutput(port int, t tensor.Tensor) {
	b.Out[port].Release()
	b.Out[port] = t
}

// Fail fails the request that holds the given row; the others go on. The first
// failure of a request is kept.
func (b *Batch) Fail(row int, err error) {
	for i := range b.Reqs {
		if r := &b.Reqs[i]; row >= r.First && row < r.First+r.Rows {
			if r.Err == nil {
				r.Err = err
			}
			return
		}
	}
}

// Reschedule has the i-th request of the batch executed once more, with the same
// inputs and without the START signal: it is not answered now, and what the batch puts
// out for it is dropped (but the states of its sequence, and what Send has sent). A
// model whose configuration does not say iterative_sequence fails the request so.
func (b *Batch) Reschedule(i int) {
	if i >= 0 && i < len(b.Reqs) {
		b.Reqs[i].Again = true
	}
}
