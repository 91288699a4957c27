package exec

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tensordiff"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// Shadows. The node of a shadow gets the tensors that a step has read and written. It sends a copy of the request to another model, in the
// background and in a goroutine of its own, and goes on at once. The response is compared with what the step wrote. Whatever becomes of it,
// the request does not notice.

// shadow sends copies of a step's requests. It is safe for concurrent use.
type shadow struct {
	*plan.Shadow

	name     string // of the node
	node     int32  // of the executor's plan
	counts   *telemetry.Shadow
	inFlight atomic.Int64
	router   *router // of a canary that counts the differences; nil for none
	random   func() float64
}

// shadowTime bounds a copy.
const shadowTime = time.Minute

// isCopy is the key of the contexts of copies. A copy is not copied again: two ensembles may be shadows of each other.
type isCopy struct{}

// newShadows returns, per node, the shadow that it is; nil when the plan has none.
func newShadows(x *Executor) (list []*shadow) {
	for i := range x.plan.Nodes {
		n := &x.plan.Nodes[i]
		if n.Operation == nil || n.Operation.Shadow == nil {
			continue
		}
		if list == nil {
			list = make([]*shadow, len(x.plan.Nodes))
		}
		s := &shadow{Shadow: n.Operation.Shadow, name: n.Name, node: int32(i), counts: &telemetry.Shadow{}, random: rand.Float64}
		if x.stats != nil {
			s.counts = x.stats.ShadowOf(s.Step, s.Name)
		}
		for _, u := range x.routers {
			if u.Step == s.Step && u.Canary != nil && u.Canary.MaxDrift >= 0 {
				s.router = u
			}
		}
		list[i] = s
	}
	return list
}

// copied is a copy of a request and what the step wrote for it. It owns both.
type copied struct {
	*shadow

	x     *Executor
	req   *infer.Request
	want  []infer.Named
	trace *tracing.Trace // of the request that was copied, or nil
}

// shadowed starts a copy of the request, unless too many are in flight. It takes over what the node reads.
func (r *run) shadowed(n int32, node *plan.Node) {
	s, in := r.x.shadows[n], r.tasks[n].In
	defer tensor.ReleaseAll(in)
	whole := true
	for port, slot := range node.In {
		if in[port] = r.read(slot); !in[port].Present() {
			whole = whole && node.Signature.Inputs[port].Optional && port < len(s.Inputs)
			continue
		}
		switch {
		case node.Runtime != nil && node.Runtime[port] != plan.Declared:
			fitUnchecked(&in[port], node.Runtime[port], &node.Signature.Inputs[port].Dims)
		case !fit(&in[port], node.Rules[port]), r.project(&in[port], node, port) != nil:
			whole = false
		}
	}
	if !whole || r.x.copying.Err() != nil || r.ctx.Value(isCopy{}) != nil || s.Share < 1 && s.random() >= s.Share {
		return
	}
	if s.inFlight.Add(1) > int64(s.InFlight) {
		s.inFlight.Add(-1)
		s.counts.Results[telemetry.ShadowDropped].Add(1)
		return
	}
	c := &copied{shadow: s, x: r.x, req: infer.NewRequest()}
	c.req.Model, c.req.Version = s.Model, max(s.Version, 0)
	if r.req.ID != "" {
		c.req.ID = r.req.ID + ".shadow"
	}
	c.req.Params = append(c.req.Params, r.req.Params...)
	c.req.Async, c.req.Nested, c.req.Background = true, true, true
	for port := range in {
		if !in[port].Present() {
			continue
		}
		named := infer.Named{Name: s.Ports[port].Name, Tensor: in[port].Move()}
		if port < len(s.Inputs) {
			c.req.Inputs = append(c.req.Inputs, named)
		} else {
			c.want, c.req.Outputs = append(c.want, named), append(c.req.Outputs, named.Name)
		}
	}
	if r.req.Trace != nil {
		c.trace = r.req.Trace.Hold()
	}
	r.x.pending.Add(1)
	go c.send()
}

// send executes the copy and compares the response.
func (c *copied) send() {
	ctx, cancel := context.WithTimeout(context.WithValue(c.x.copying, isCopy{}, true), shadowTime)
	defer cancel()
	call := infer.NewCall()
	c.x.submitter(ctx, c.req, call)
	resp, err := call.Wait()
	result := telemetry.ShadowFailed
	var text string
	switch {
	case err != nil:
		text = "failed: " + status.Line(err.Error())
	default:
		if text, err = c.compare(resp); err != nil {
			text = "could not be compared: " + status.Line(err.Error())
		} else if result = telemetry.ShadowEqual; text != "" {
			result = telemetry.ShadowDifferent
		}
	}
	c.counts.Results[result].Add(1)
	if c.router != nil && result != telemetry.ShadowFailed {
		c.router.observeShadow(result == telemetry.ShadowDifferent)
	}
	c.note(resp, text)
	if resp != nil {
		resp.Release()
	}
	for i := range c.want {
		c.want[i].Tensor.Release()
	}
	c.inFlight.Add(-1)
	c.x.pending.Add(-1)
}

// compare returns the first tensor that differs, and how; "" when none does.
func (c *copied) compare(resp *infer.Response) (string, error) {
	for i := range c.want {
		want := &c.want[i]
		got := resp.Output(want.Name)
		if got == nil {
			return fmt.Sprintf("output '%s' is not there", want.Name), nil
		}
		if want.Tensor.Buf.Place().Kind == tensor.Device {
			if err := c.x.mover.ToHost(&want.Tensor, batch.Note{Ledger: &c.x.stats.Copies, Tensor: want.Name, Reason: telemetry.ForCapture}); err != nil {
				return "", err
			}
		}
		if err := batch.WaitOnHost(&want.Tensor); err != nil {
			return "", err
		}
		near := tensordiff.DefaultTolerance(want.Tensor.DType).With(c.Absolute, c.Relative)
		if d := tensordiff.Compare(compared(&want.Tensor), compared(got), near, false); d != nil {
			return fmt.Sprintf("output '%s' %s", want.Name, d), nil
		}
	}
	return "", nil
}

// compared is a tensor on the host for a comparison.
func compared(t *tensor.Tensor) *tensordiff.Tensor {
	return &tensordiff.Tensor{DType: t.DType, Shape: t.Shape.Dims(), Data: t.Bytes(), Whole: true}
}

// note records a difference: in the trace of the request that was copied, and in its capture with the tensors of the response.
func (c *copied) note(resp *infer.Response, text string) {
	if c.trace == nil {
		return
	}
	if text == "" {
		text = "the responses are equal"
	}
	reason := fmt.Sprintf("the copy of a request of '%s' for '%s': %s", c.Step, c.Name, text)
	c.trace.Event(&tracing.Event{Kind: tracing.EventShadow, At: telemetry.Now(), Node: c.x.number(c.node), Reason: reason})
	if f := c.trace.Snapshot(); f != nil && resp != nil {
		host := run{x: c.x, call: call{req: &infer.Request{Trace: c.trace}}}
		for i := range resp.Outputs {
			o := &resp.Outputs[i]
			host.capture(f, tracing.TensorEdge{Node: c.x.number(c.node), Step: c.name, Tensor: o.Name, Names: []string{o.Name}, Models: []string{c.Model}}, 0, &o.Tensor)
		}
	}
	c.trace.End()
}

// routeNode computes a node of a route or a shadow, and returns how many tasks that staged; ok is false for any other node.
func (r *run) routeNode(n, after int32, node *plan.Node, loop *scheduler.RunLoop) (staged int32, ok bool) {
	switch op := node.Operation; {
	case op.Shadow != nil:
		r.shadowed(n, node)
		return 0, true
	case op.Takes:
		for _, slot := range node.In {
			unused := r.read(slot)
			unused.Release()
		}
		r.takeRoute(n, node)
		return r.deliver(node.Out[0], after, loop), true
	}
	return 0, false
}
