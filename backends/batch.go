package backends

import (
	"context"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Request is one request of a batch. The fields after In are set by the instance.
type Request struct {
	// Meta has the id, the sequence and the parameters of the request. It may be nil. Borrowed.
	Meta *infer.Meta
	// Ctx is cancelled when the client cancels, disconnects or times out. It may be nil.
	Ctx context.Context //nolint:containedctx // a member of a batch is a request in flight
	// Trace is nil for requests that are not traced. Step and SubRun locate this execution in the trace.
	Trace        *tracing.Trace
	Step, SubRun int32
	// First and Rows are the request's rows in the batch: First to First+Rows-1.
	First, Rows int
	// RequestedOutputs are the names of the outputs that the client or a later step reads. Empty means all. A model may omit
	// the others. Borrowed.
	RequestedOutputs []string
	// In are the request's inputs before they were concatenated, in Signature order. They give the shapes of ragged inputs.
	// Borrowed. Nil when nothing was concatenated.
	In []tensor.Tensor

	// Err fails this request only.
	Err error
	// Rescheduled requests another execution of this request. Batch.Reschedule sets it.
	Rescheduled bool
	// Unexecuted is set by a SerialModel, in a call with Batch.Serial, for a request that it has not executed: the server passes it to the
	// instance again, in another call. All requests after it must be unexecuted too, and the first one must not be.
	Unexecuted bool
	// ResponseParams are the response parameters. In an ensemble, sequence_id, sequence_start and sequence_end also apply to
	// the steps that follow.
	ResponseParams infer.Params
	// Out, when not nil, has the outputs of this request in Signature order, instead of its rows of Batch.Out. The tensors
	// move; the slice is borrowed. An output of a port marked Unchecked may have any data type, shape and number of rows here,
	// and in Batch.Out of a batch of one request.
	Out []tensor.Tensor
}

// ReportActivity adds a custom activity to the trace of the request, as TRITONSERVER_InferenceTraceReportActivity does. The
// names NAME_START and NAME_END become a span in exported traces. It does nothing for a request that is not traced.
func (r *Request) ReportActivity(name string) { r.Trace.Report(r.Step, name) }

// Batch is the unit of execution: one or more requests whose inputs were concatenated along the batch dimension.
//
// For example, requests with 2 and 1 rows of an input FP32 [4] give Rows 3, Requests[0].First 0 and Requests[1].First 2, and
// In[0] of shape [3,4]. The instance then sets Out[0] to a tensor with 3 rows:
//
//	out, err := b.Alloc(0, tensor.FP32, tensor.Of(int64(b.Rows), 4))
//
// Lifecycle:
//
//  1. The server fills in all fields but Out and calls Instance.Execute.
//  2. During Execute the instance reads In and calls the methods below, one at a time: they are not safe for concurrent use.
//  3. When Execute returns, the server takes the outputs. The instance must not use the batch any more.
type Batch struct {
	Requests []Request
	// Rows is the batch dimension of all tensors. It is 1 for a model that does not batch.
	Rows int
	// In has the inputs in Signature order. An optional input that no request has is absent (Tensor.Present is false).
	// Borrowed: valid until Execute returns.
	In []tensor.Tensor
	// Out receives the outputs in Signature order. Use Alloc, AllocBytes or SetOutput to set one. The response of a request
	// lacks outputs that are left absent.
	Out []tensor.Tensor
	// Allocator allocates outputs, at the place that the server chose.
	Allocator tensor.Allocator
	// HostAllocator allocates BYTES outputs when Allocator is a device's. Nil means Allocator.
	HostAllocator tensor.Allocator
	// InPlace has, for each output, one more than the index of the input whose memory it may reuse; 0 for none. It is nil
	// when no output may reuse memory. See AllocInPlace.
	InPlace []int32
	// Stream is the stream of an instance at a device, nil on the host. The inputs are ready for work on this stream.
	// Execute may return before the stream is done: the server waits for the stream before it reads the outputs.
	Stream tensor.Stream
	// AnyPlace is the instance when it is an AnyPlaceInstance and the server has devices. Stream is nil then.
	AnyPlace AnyPlaceInstance
	// Copied counts a copy of a tensor to or from a process of the model, which the instance makes itself. Nil where there are no
	// devices.
	Copied func(name string, from, to tensor.Place, bytes int)
	// Responses sends the responses of a decoupled model. It is nil for any other model.
	Responses Responses
	// Serial marks the requests of a SerialModel that are executed one after the other, each as a batch of its own. Their inputs are in
	// Request.In, and their outputs are set in Request.Out; In has no tensors. Rows is the sum of theirs.
	Serial bool
}

// Responses sends responses of a decoupled model while the batch executes. The server implements it; instances call the
// methods of Batch instead. Its methods are not safe for concurrent use.
type Responses interface {
	// Respond sends one response to request i of the batch: outputs in Signature order, which move; params are borrowed.
	// It blocks while the client is slow.
	Respond(i int, out []tensor.Tensor, params infer.Params, final bool) error
	// Detach makes the instance available for the next batch. It may be called once.
	Detach()
}

// ErrorResponder is a Responses that sends errors to clients while the batch still executes.
type ErrorResponder interface {
	Responses
	// RespondError sends err to the client of request i. final means that no response follows.
	RespondError(i int, err error, final bool)
}

// Send sends a response to request i. A decoupled model may call it any number of times; final marks the last response. The
// outputs move in every case. An error means that the client no longer waits, or that the outputs do not match the
// signature; the instance should stop sending to that request.
//
// A request whose execution ends without a final response ends without one. Models that are not decoupled must not send.
func (b *Batch) Send(i int, out []tensor.Tensor, final bool) error {
	return b.SendParams(i, out, nil, final)
}

// SendParams is Send with response parameters, which are borrowed. See Request.ResponseParams.
func (b *Batch) SendParams(i int, out []tensor.Tensor, params infer.Params, final bool) error {
	if b.Responses == nil {
		tensor.ReleaseAll(out)
		return status.Errorf(status.Unsupported,
			"the model sends several responses, expected 'model_transaction_policy { decoupled: true }' in its configuration")
	}
	return b.Responses.Respond(i, out, params, final)
}

// SendError fails request i. The first error is kept. When the model is decoupled, the client receives the error at once, not
// at the end of the batch. Responses may follow unless it is final.
func (b *Batch) SendError(i int, err error, final bool) {
	r := &b.Requests[i]
	if r.Err != nil {
		return
	}
	r.Err = err
	if f, ok := b.Responses.(ErrorResponder); ok {
		f.RespondError(i, err, final)
	}
}

// Detach makes the instance available for its next batch although responses of this one still follow. A decoupled model may
// call it at most once, during Execute. Execute must still not return before the last response, so the instance must support
// concurrent calls of Execute. Detach does nothing for a model that is not decoupled.
func (b *Batch) Detach() {
	if b.Responses != nil {
		b.Responses.Detach()
	}
}

// Alloc sets an output to a new tensor of fixed-size elements and returns it, borrowed. Its memory is not cleared.
func (b *Batch) Alloc(port int, d tensor.DType, s tensor.Shape) (*tensor.Tensor, error) {
	t, err := tensor.New(b.Allocator, d, s)
	if err != nil {
		return nil, err
	}
	b.SetOutput(port, t)
	return &b.Out[port], nil
}

// AllocInPlace is Alloc for a model that computes element by element: it reads element k of its inputs before it writes
// element k of the output. The output reuses the memory of an input when the configuration allows it
// (use_same_buffer_for_input_output of a sequence state), both have the same type and shape, and the memory is on the host.
// Memory at a device is not reused, because other streams may still read it.
func (b *Batch) AllocInPlace(port int, d tensor.DType, s tensor.Shape) (*tensor.Tensor, error) {
	if b.InPlace == nil || b.InPlace[port] == 0 {
		return b.Alloc(port, d, s)
	}
	in := &b.In[b.InPlace[port]-1]
	if !in.Present() || in.Buf.Place().Kind == tensor.Device || d == tensor.Bytes || in.DType != d || !in.Shape.Equal(s) {
		return b.Alloc(port, d, s)
	}
	b.SetOutput(port, in.Retain())
	return &b.Out[port], nil
}

// AllocBytes sets an output to a new BYTES tensor of n encoded bytes and returns it, borrowed. Its memory is on the host and
// not cleared. For example, the elements "a" and "bc" take 4+1+4+2 = 11 bytes.
func (b *Batch) AllocBytes(port int, s tensor.Shape, n int) (*tensor.Tensor, error) {
	alloc := b.HostAllocator
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

// SetOutput moves t to an output and releases the tensor that it replaces.
func (b *Batch) SetOutput(port int, t tensor.Tensor) {
	b.Out[port].Release()
	b.Out[port] = t
}

// Fail fails the request that contains a row. The other requests continue. The first error of a request is kept.
func (b *Batch) Fail(row int, err error) {
	for i := range b.Requests {
		if r := &b.Requests[i]; row >= r.First && row < r.First+r.Rows {
			if r.Err == nil {
				r.Err = err
			}
			return
		}
	}
}

// Reschedule executes request i once more, with the same inputs but without the START control. The server discards the
// outputs of this execution, apart from sequence states and sent responses. The model's configuration must have
// iterative_sequence; otherwise the request fails.
func (b *Batch) Reschedule(i int) {
	if i >= 0 && i < len(b.Requests) {
		b.Requests[i].Rescheduled = true
	}
}
