package grpcapi

import (
	"context"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/shm"
)

// streamCall is one request of a stream, and the sink of its responses.
type streamCall struct {
	st     *stream
	id     string
	size   int // bytes of the request's message
	charge infer.Charge
	about  *infer.Description
	wants  []outputOptions
	// windows are those of the message.
	windows []*shm.Window
	// ordered holds the response until those of earlier requests are sent. It needs exactly one response, so it is
	// never set for decoupled models.
	ordered    bool
	emptyFinal bool
	ended      bool  // a final response was sent
	failed     bool  // the client has the error
	err        error // why the responses cannot be sent
	reply      *response
	done       bool
	next       *streamCall
}

var (
	_ infer.Pacer  = (*streamCall)(nil)
	_ infer.Failer = (*streamCall)(nil)
)

var streamCalls pool.Of[streamCall]

// newStreamCall returns the call for what d has decoded, or for its error.
func newStreamCall(st *stream, d *decoder) *streamCall {
	c := streamCalls.Get()
	*c = streamCall{
		st: st, id: d.id, about: d.about, emptyFinal: d.emptyFinal, charge: d.msg.charge.Move(),
		ordered: d.about == nil || !d.about.Decoupled && !d.about.Early,
		wants:   append(c.wants[:0], d.msg.wants...),
		windows: append(c.windows[:0], d.msg.windows...),
	}
	c.charge.Add(requestCost)
	d.msg.windows = reuse(d.msg.windows) // moved to the call
	return c
}

func (c *streamCall) recycle() {
	c.charge.Release()
	*c = streamCall{wants: reuse(c.wants), windows: reuse(c.windows)}
	streamCalls.Put(c)
}

// Send queues a response, or holds it until its turn.
func (c *streamCall) Send(resp *infer.Response) {
	r := responses.Get()
	r.resp, r.stream, r.final = resp, true, resp.Final
	if c.err == nil {
		r.shared, c.err = applyOptions(resp, c.wants, c.about, c.st.svc.set.Alloc, r.shared)
	}
	if c.err != nil {
		r.release() // Close sends the error
		return
	}
	c.ended = c.ended || r.final
	if !c.ordered {
		c.st.queueResponse(r)
		return
	}
	if c.reply != nil {
		c.reply.release()
	}
	c.reply = r
}

// Fail sends the error of a decoupled model, which may send further responses.
func (c *streamCall) Fail(err error, final bool) {
	if c.ordered || c.failed || c.err != nil {
		return // Close sends it
	}
	c.failed, c.ended = true, final
	r := c.failure(err)
	r.final = final
	c.st.queueResponse(r)
}

// Close ends the request.
func (c *streamCall) Close(err error) {
	r := c.reply
	c.reply = nil
	if err == nil {
		err = c.err
	}
	if c.failed {
		err = nil
	}
	if err == nil && c.ordered && r == nil {
		err = errNoResponse
	}
	switch {
	case err != nil:
		if r != nil {
			r.release()
		}
		r = c.failure(err)
	case c.ordered:
		r.final = true
	case c.emptyFinal && !c.ended:
		r = c.last()
		r.resp.Model, r.resp.Version = c.about.Model, c.about.Version
	}
	c.windows = closeWindows(c.windows)
	c.st.finish(c, r)
}

// last returns a final response without outputs.
func (c *streamCall) last() *response {
	r := responses.Get()
	r.resp, r.stream, r.final = infer.NewResponse(), true, true
	r.resp.ID = c.id
	return r
}

// failure returns the response to a failed request.
func (c *streamCall) failure(err error) *response {
	code, text := wireStatus(err)
	r := c.last()
	if c.st.plain {
		r.status = detailed(code, text, err)
	}
	if r.err = text; text == "" {
		r.err = code.String() // an empty text would be no error
	}
	r.resp.Params = errorParams(r.resp.Params, err)
	return r
}

// errorParams adds what an error says to the parameters of a streamed response, which has no status. They have the names of the HTTP headers.
func errorParams(to infer.Params, err error) infer.Params {
	d := status.DetailsOf(err)
	text := func(key, value string) {
		to = append(to, infer.Param{Key: key, Kind: infer.ParamString, String: strings.ToValidUTF8(value, "\ufffd")})
	}
	number := func(key string, value time.Duration) {
		to = append(to, infer.Param{Key: key, Kind: infer.ParamInt, Int: status.Milliseconds(value)})
	}
	text(status.ReasonParam, string(d.Reason))
	to = append(to, infer.Param{Key: status.RetryableParam, Kind: infer.ParamBool, Bool: d.Retryable})
	if d.RetryAfter > 0 {
		number(status.RetryAfterParam, d.RetryAfter)
	}
	if d.Step != "" {
		text(status.StepParam, d.Step)
	}
	if d.Finish > 0 {
		number(status.FinishParam, d.Finish)
	}
	return to
}

// Pace makes a decoupled model wait while the client does not read.
func (c *streamCall) Pace(ctx context.Context) error { return c.st.waitForRoom(ctx, (*stream).unread) }

// Full reports whether the client must read before there is room.
func (c *streamCall) Full() bool {
	c.st.mu.Lock()
	defer c.st.mu.Unlock()
	return !c.st.closed && c.st.unread()
}
