package remote

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/inference"
)

// exchange is one call with its request and its response. It is pooled by its model.
type exchange struct {
	call
	req     request
	resp    response
	options []grpc.CallOption
}

func newExchange(m *model) *exchange {
	x := &exchange{req: request{m: m}, resp: response{m: m}}
	x.options = []grpc.CallOption{grpc.Peer(&x.peer), grpc.Trailer(&x.trailer)}
	return x
}

// recycle returns x to its pool.
func (m *model) recycle(x *exchange) {
	x.resp.free()
	x.call = call{}
	x.req = request{m: m}
	m.requests.Put(x)
}

// Execute sends the batch as one request, if its requests agree in everything but their tensors, and otherwise as one for each.
func (m *model) Execute(ctx context.Context, b *backends.Batch) error {
	if m.Sig.Decoupled {
		return m.stream(ctx, b)
	}
	if !agree(b.Requests) {
		m.each(ctx, b, m.single)
		return nil
	}
	ctx, stop := contextOf(ctx, b.Requests)
	defer stop()
	x := m.requests.Get()
	defer m.recycle(x)
	x.req.fill(b.Requests, b.In)
	err := m.invoke(ctx, x, b.Requests, b.Rows, b.Allocator, b.Out)
	if err == nil {
		if len(b.Requests) == 1 {
			b.Requests[0].ResponseParams = x.resp.params
		}
		return nil
	}
	if len(b.Requests) > 1 && status.CodeOf(err) != status.InvalidArg && !errors.Is(err, errLongResponse) { // the server would send the requests again, one by one
		for i := range b.Requests {
			b.Requests[i].Err = err
		}
		return nil
	}
	return err
}

// single sends request i of a batch alone.
func (m *model) single(ctx context.Context, b *backends.Batch, i int) error {
	q := &b.Requests[i]
	ctx, stop := contextOf(ctx, b.Requests[i:i+1])
	defer stop()
	x := m.requests.Get()
	defer m.recycle(x)
	x.req.fill(b.Requests[i:i+1], q.In)
	out := make([]tensor.Tensor, len(m.Sig.Outputs))
	if err := m.invoke(ctx, x, b.Requests[i:i+1], q.Rows, b.Allocator, out); err != nil {
		return err
	}
	q.Out, q.ResponseParams = out, x.resp.params
	return nil
}

// each calls send for every request of a batch at the same time, and stores the errors.
func (*model) each(ctx context.Context, b *backends.Batch, send func(ctx context.Context, b *backends.Batch, i int) error) {
	var all sync.WaitGroup
	for i := range b.Requests {
		all.Go(func() {
			if err := send(ctx, b, i); err != nil && b.Requests[i].Err == nil {
				b.Requests[i].Err = err
			}
		})
	}
	all.Wait()
}

const (
	methodInfer  = "/" + "inference.GRPCInferenceService" + "/ModelInfer"
	methodStream = "/" + "inference.GRPCInferenceService" + "/ModelStreamInfer"
)

// streamDesc describes ModelStreamInfer.
var streamDesc = &inference.GRPCInferenceService_ServiceDesc.Streams[0]

// invoke sends x as a unary call, and reads its outputs.
func (m *model) invoke(ctx context.Context, x *exchange, members []backends.Request, rows int, a tensor.Allocator, out []tensor.Tensor) error {
	limited, stop := m.set.limited(ctx)
	defer stop()
	err := m.channel.conn().Invoke(m.outgoing(limited, members), methodInfer, &x.req, &x.resp, x.options...)
	if err != nil {
		return m.set.callError(ctx, err, &x.call)
	}
	x.resp.stream = false
	if err := x.resp.scan(); err != nil {
		return x.resp.bad("is malformed (%v), expected a message of KServe v2", err)
	}
	return x.resp.tensors(a, rows, out)
}

// agree reports whether requests can be sent as one: they are no members of sequences and have the same parameters.
func agree(list []backends.Request) bool {
	if len(list) == 1 {
		return true
	}
	first := list[0].Meta
	for i := range list {
		m := list[i].Meta
		if m == nil || first == nil {
			if m != first {
				return false
			}
			continue
		}
		if m.Sequence != (infer.Sequence{}) || m.Priority != first.Priority || !slices.Equal(m.Params, first.Params) || (m.Timeout == 0) != (first.Timeout == 0) {
			return false
		}
	}
	return true
}

// outgoing adds the headers of a call: the trace context, whether all members are in the background, and for members of sequences what
// balances them. A call with an online request and some in the background is an online one.
func (m *model) outgoing(ctx context.Context, members []backends.Request) context.Context {
	var pairs []string
	for i := range members {
		if q := &members[i]; q.Trace != nil {
			if c := q.Trace.Context(q.Step, q.SubRun); c.Number != 0 || c.ID != [16]byte{} {
				pairs = append(pairs, "traceparent", c.Parent())
				if c.State != "" {
					pairs = append(pairs, "tracestate", c.State)
				}
				break
			}
		}
	}
	if meta := members[0].Meta; m.set.balancing == bySequence && meta != nil {
		if s := &meta.Sequence; s.Name != "" {
			pairs = append(pairs, sequenceHeader, strconv.QuoteToASCII(s.Name))
		} else if s.ID != 0 {
			pairs = append(pairs, sequenceHeader, strconv.FormatUint(s.ID, 10))
		}
	}
	if !slices.ContainsFunc(members, func(q backends.Request) bool { return q.Meta == nil || !q.Meta.Background }) {
		pairs = append(pairs, infer.BackgroundHeader, "1")
	}
	if m.set.balancing == weighted && !m.set.oob {
		pairs = append(pairs, "endpoint-load-metrics-format", "bin")
	}
	if len(pairs) == 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// contextOf returns the context of a call for requests: it ends when all their clients have gone, and has the latest of their
// deadlines, if all have one. stop must be called.
func contextOf(ctx context.Context, list []backends.Request) (_ context.Context, stop func()) {
	if len(list) == 1 {
		if list[0].Ctx != nil {
			ctx = list[0].Ctx
		}
		d, ok := deadlineOf(&list[0])
		if !ok {
			return ctx, func() {}
		}
		if have, ok := ctx.Deadline(); ok && !have.After(d) {
			return ctx, func() {}
		}
		return context.WithDeadline(ctx, d)
	}
	ctx, cancel := context.WithCancel(ctx)
	stops := []func(){cancel}
	var here atomic.Int32
	here.Store(int32(len(list)))
	latest, all := time.Time{}, true
	for i := range list {
		if list[i].Ctx != nil {
			unhook := context.AfterFunc(list[i].Ctx, func() {
				if here.Add(-1) == 0 {
					cancel()
				}
			})
			stops = append(stops, func() { unhook() })
		}
		d, ok := deadlineOf(&list[i])
		if all = all && ok; d.After(latest) {
			latest = d
		}
	}
	if all {
		var end context.CancelFunc
		ctx, end = context.WithDeadline(ctx, latest)
		stops = append(stops, end)
	}
	return ctx, func() {
		for _, f := range stops {
			f()
		}
	}
}

// deadlineOf returns the deadline of a request.
func deadlineOf(q *backends.Request) (d time.Time, ok bool) {
	if q.Ctx != nil {
		d, ok = q.Ctx.Deadline()
	}
	if q.Meta == nil || q.Meta.Deadline == 0 {
		return d, ok
	}
	m := time.Now().Add(time.Duration(q.Meta.Deadline - telemetry.Now()))
	if !ok || m.Before(d) {
		return m, true
	}
	return d, true
}
