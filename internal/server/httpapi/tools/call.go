package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// errNoTool is the error for a name that is no tool of the client.
var errNoTool = status.Errorf(status.NotFound, "no such tool")

// call executes one call. An unknown tool is an error of the protocol; other errors are results, which the agent sees.
func (m *message) call(ctx context.Context, p *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
	t, err := m.find(p.Name)
	if code := status.CodeOf(err); err != nil && (code == status.NotFound || code == status.InvalidArg) {
		return nil, invalid("there is no tool '%.200s', expected a name out of tools/list", p.Name)
	}
	m.Load.Begin()
	var res *mcp.CallToolResult
	if err == nil {
		res, err = m.execute(ctx, &t, p.Arguments)
	}
	m.Load.End(err)
	if err != nil {
		return failure(err), nil
	}
	return res, nil
}

// execute submits a call as the inference endpoint does.
func (m *message) execute(ctx context.Context, t *tool, arguments json.RawMessage) (*mcp.CallToolResult, error) {
	charge := m.InFlight.Charge()
	charge.For(m.client)
	defer charge.Release()
	req := infer.NewRequest()
	req.Model = t.desc.Model
	err := m.prepare(req, t, arguments, &charge)
	req.Origin = tracing.Origin{Read: m.read, Start: tracing.HTTPRecvStart, Done: tracing.HTTPRecvEnd}
	req.SetClient(m.client)
	if parent := m.header["Traceparent"]; len(parent) == 1 && m.Tracer.On() {
		req.Origin.Follow(parent[0], strings.Join(m.header["Tracestate"], ","))
	}
	if err != nil {
		m.Tracer.RecordRefusal(req.Model, t.desc.Version, req.ID, &req.Origin, err)
		req.Release()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(m.ctx, cancel) //nolint:contextcheck // the client has left
	defer stop()
	c := &collector{done: make(chan struct{}), limit: m.MaxInput, cancel: cancel, desc: t.desc}
	m.Infer.Submit(ctx, req, c)
	<-c.done
	defer c.release()
	if c.err != nil {
		return nil, c.err
	}
	for _, r := range c.list {
		r.Trace.Mark(tracing.HTTPSendStart)
		defer r.Trace.Mark(tracing.HTTPSendEnd)
		charge.Add(r.Size())
	}
	return t.result(c.list)
}

// prepare fills the request from the arguments and the header.
func (m *message) prepare(req *infer.Request, t *tool, arguments json.RawMessage, charge *infer.Charge) error {
	a := reader{tool: t, req: req, charge: charge, alloc: m.Alloc, limit: m.MaxInput}
	if err := a.read(arguments); err != nil {
		return err
	}
	if limit := m.header["Tutti-Timeout-Ms"]; limit != nil {
		if err := req.SetTimeLimit(limit, telemetry.Now()); err != nil {
			return err
		}
	}
	if m.Forward == nil {
		return nil
	}
	for name, values := range m.header {
		if m.Forward.MatchString(name) {
			if err := req.Forward(strings.ToLower(name), values[len(values)-1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// collector is the sink of a call: it keeps all responses of a model, up to a limit of bytes.
type collector struct {
	done   chan struct{}
	limit  int64
	cancel context.CancelFunc
	desc   *infer.Description

	mu   sync.Mutex
	list []*infer.Response // guarded by mu until done
	size int64             // guarded by mu
	over bool              // guarded by mu
	err  error
}

var _ infer.Sink = (*collector)(nil)

// Send implements infer.Sink.
func (c *collector) Send(r *infer.Response) {
	const overhead = 256 // of a response, however small
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(r.Outputs) == 0 || c.over { // the empty end of a stream, or too much
		r.Release()
		return
	}
	c.size += r.Size() + overhead
	c.list = append(c.list, r)
	if c.desc.Decoupled && c.size > c.limit {
		c.over = true
		c.cancel()
	}
}

// Close implements infer.Sink.
func (c *collector) Close(err error) {
	c.mu.Lock()
	switch n := len(c.list); {
	case c.over:
		err = status.Reasonf(status.TooLarge, "the tool '%s' has sent more than the %d bytes that one result may have; use --http-max-input-size to change it", c.desc.Model, c.limit)
	case err == nil && n == 0 && !c.desc.Decoupled:
		err = status.Errorf(status.Internal, "the tool '%s' has sent no response", c.desc.Model)
	}
	c.err = err
	c.mu.Unlock()
	close(c.done)
}

func (c *collector) release() {
	for _, r := range c.list {
		r.Release()
	}
}

// failure returns the result of a call that failed: what failed, and what to do. Its _meta has what programs act on.
func failure(err error) *mcp.CallToolResult {
	d := status.DetailsOf(err)
	text := fmt.Sprintf("%s\nreason: %s; %s", strings.ToValidUTF8(transport.ErrorText(err), "\ufffd"), d.Reason, advice(err, &d))
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}},
		Meta: mcp.Meta{"tutti/error": json.RawMessage(transport.AppendError(nil, err))},
	}
}

// advice says what to do about an error.
func advice(err error, d *status.Details) string {
	switch code := status.CodeOf(err); {
	case d.Retryable && d.RetryAfter > 0:
		return fmt.Sprintf("call the tool again after %d ms", status.Milliseconds(d.RetryAfter))
	case d.Retryable:
		return "call the tool again later"
	case code == status.InvalidArg:
		return "correct the arguments as the text says, and call the tool again"
	case code == status.Cancelled:
		return "call the tool again with a later deadline"
	default:
		return "the same call fails again: report the text to the operator of the server"
	}
}
