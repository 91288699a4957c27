package grpcapi

import (
	"context"

	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/shm"
)

// streamCall is one request of a stream, and the sink of its answers.
type streamCall struct {
	st     *stream
	id     string
	size   int // bytes of the request's message
	charge infer.Charge
	about  *infer.Description
	wants  []want
	// windows are those of the message.
	windows []*shm.Window
	// ordered keeps the answer back until those of earlier requests are sent. It has
	// to be one answer, so this is not for decoupled models.
	ordered    bool
	emptyFinal bool
	ended      bool  // whether an answer was the final one
	failed     bool  // whether the client knows of the failure
	err        error // why the answers cannot be given
	reply      *reply
	done       bool
	next       *streamCall
}

var (
	_ infer.Pacer  = (*streamCall)(nil)
	_ infer.Failer = (*streamCall)(nil)
)

var streamCalls pool.Of[streamCall]

// newStreamCall returns the call of what d has decoded, or of what it could not.
func newStreamCall(st *stream, d *decoder) *streamCall {
	c := streamCalls.Get()
	*c = streamCall{
		st: st, id: d.id, about: d.about, emptyFinal: d.emptyFinal, charge: d.msg.charge.Move(),
		ordered: d.about == nil || !d.about.Decoupled,
		wants:   append(c.wants[:0], d.msg.wants...),
		windows: append(c.windows[:0], d.msg.windows...),
	}
	clear(d.msg.wants) // they have moved
	d.msg.windows = reuse(d.msg.windows)
	return c
}

func (c *streamCall) recycle() {
	c.charge.Release()
	*c = streamCall{wants: reuse(c.wants), windows: reuse(c.windows)}
	streamCalls.Put(c)
}

// Send queues an answer, or keeps it until it may be.
func (c *streamCall) Send(resp *infer.Response) {
	r := newReply()
	r.resp, r.stream, r.final = resp, true, resp.Final
	if c.err == nil {
		r.shared, c.err = fulfil(resp, c.wants, c.about, c.st.svc.set.Alloc, r.shared)
	}
	if c.err != nil {
		r.release() // Close tells
		return
	}
	c.ended = c.ended || r.final
	if !c.ordered {
		c.st.answer(r)
		return
	}
	if c.reply != nil {
		c.reply.release()
	}
	c.reply = r
}

// Fail sends the error of a decoupled model, which may still send responses.
func (c *streamCall) Fail(err error, final bool) {
	if c.ordered || c.failed || c.err != nil {
		return // Close tells
	}
	c.failed, c.ended = true, final
	r := c.failure(err)
	r.final = final
	c.st.answer(r)
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
		err = status.Errorf(status.Internal, "received an unexpected null response")
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
	closeWants(c.wants)
	c.windows = closeWindows(c.windows)
	c.st.finish(c, r)
}

// last returns a reply without outputs that ends the request.
func (c *streamCall) last() *reply {
	r := newReply()
	r.resp, r.stream, r.final = infer.NewResponse(), true, true
	r.resp.ID = c.id
	return r
}

// failure returns the reply to a request that failed.
func (c *streamCall) failure(err error) *reply {
	code, text := wireStatus(err)
	r := c.last()
	if c.st.plain {
		r.status = grpcstatus.Error(code, text)
	}
	if r.err = text; text == "" {
		r.err = code.String() // an empty text would be no error
	}
	return r
}

// Pace holds a decoupled model back while the client does not read.
func (c *streamCall) Pace(ctx context.Context) error { return c.st.pace(ctx) }

// Full reports whether the client has to read before there is room.
func (c *streamCall) Full() bool { return c.st.crowded() }
