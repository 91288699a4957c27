package ring

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
)

const maxText = 1 << 10 // bounds each text of a stored record: an error may repeat what a client sent

// codec encodes or decodes a record. Each method handles both directions, so that the format stands in one place: it
// appends the value to b, or, when decode is set, reads the value from the front of b. Integers are varints, and times
// are relative to the record's begin. Encoding does not modify the record and does not allocate while b has room.
type codec struct {
	b      []byte
	decode bool
	failed bool
	base   int64 // times are relative to it
}

var errCorrupt = errors.New("a stored trace is corrupt")

// appendRecord appends an encoded record to b.
//
// hot: no allocation when b has room.
func appendRecord(b []byte, r *tracing.Record) []byte {
	c := codec{b: b}
	c.record(r)
	return c.b
}

// decodeRecord decodes the result of appendRecord. It fails for anything else.
func decodeRecord(b []byte) (*tracing.Record, error) {
	c, r := codec{b: b, decode: true}, &tracing.Record{}
	c.record(r)
	if c.failed || len(c.b) != 0 {
		return nil, errCorrupt
	}
	return r, nil
}

func (c *codec) record(r *tracing.Record) {
	c.raw(r.ID[:])
	c.raw(r.Span[:])
	c.raw(r.Parent[:])
	integer(c, &r.Began)
	integer(c, &r.BeganAt)
	c.base = r.BeganAt
	c.text(&r.Model)
	integer(c, &r.Version)
	c.text(&r.Request)
	c.text(&r.Client)
	due, explained, routed := r.Deadline != 0, r.Reason != "", r.Route != ""
	c.flags(&r.Ensemble, &r.Failed, &r.Captured, &due, &explained, &routed)
	integer(c, &r.Code)
	c.text(&r.Error)
	if routed {
		c.text(&r.Route)
	}
	if explained {
		c.text((*string)(&r.Reason))
		c.text(&r.Cause)
		integer(c, &r.Finish)
	}
	if due {
		c.due(r)
	}
	resize(c, &r.Moments)
	for i := range r.Moments {
		integer(c, &r.Moments[i].Point)
		c.time(&r.Moments[i].Ns)
	}
	resize(c, &r.Steps)
	for i := range r.Steps {
		c.step(&r.Steps[i])
	}
	resize(c, &r.Events)
	for i := range r.Events {
		c.event(&r.Events[i])
	}
	resize(c, &r.Params)
	for i := range r.Params {
		c.text(&r.Params[i].Key)
		c.text(&r.Params[i].Value)
	}
}

// due is the deadline with the predictions.
func (c *codec) due(r *tracing.Record) {
	predicted := r.Predicted != 0
	c.flags(&predicted)
	c.time(&r.Deadline)
	if !predicted {
		return
	}
	c.time(&r.Predicted)
	resize(c, &r.Forecasts)
	for i := range r.Forecasts {
		f := &r.Forecasts[i]
		integer(c, &f.Node)
		c.text(&f.Step)
		c.time(&f.End)
	}
}

func (c *codec) step(s *tracing.Step) {
	held, device := s.Held != 0, s.Device.End != 0
	c.raw(s.Span[:])
	c.flags(&s.Single, &s.Cached, &s.Failed, &s.Native, &held, &device)
	integer(c, &s.Code)
	integer(c, &s.Node)
	integer(c, &s.After)
	integer(c, &s.SubRun)
	integer(c, &s.Version)
	c.text(&s.Model)
	c.time(&s.Ready)
	defer func(base int64) { c.base = base }(c.base)
	c.base = s.Ready // the numbers are smaller
	c.time(&s.Enqueued)
	c.time(&s.Done)
	if integer(c, &s.Batch); s.Batch == 0 {
		return
	}
	x := &s.Execution
	for _, t := range [...]*int64{&x.Start, &x.InputEnd, &x.InferEnd, &x.End, &x.BeforeEnd, &x.Newest} {
		c.time(t)
	}
	for _, n := range [...]*int32{&x.Instance, &x.Rows, &x.BatchRows, &x.Members} {
		integer(c, n)
	}
	integer(c, &x.Elements)
	integer(c, &x.Padding)
	integer(c, &x.Before)
	if held {
		c.time(&x.Held)
	}
	if device {
		for _, t := range [...]*int64{&x.Device.Start, &x.Device.InputEnd, &x.Device.InferEnd, &x.Device.End} {
			c.time(t)
		}
	}
	c.place(&x.Place)
	c.text(&x.Precision)
}

func (c *codec) event(e *tracing.Event) {
	integer(c, &e.Kind)
	c.time(&e.At)
	integer(c, &e.Duration)
	integer(c, &e.Node)
	c.text(&e.Tensor)
	c.text(&e.Reason)
	integer(c, &e.Bytes)
	c.place(&e.From)
	c.place(&e.To)
}

func (c *codec) place(p *tensor.Place) {
	integer(c, &p.Kind)
	integer(c, &p.ID)
}

// time is an integer relative to base.
func (c *codec) time(v *int64) {
	n := *v - c.base
	integer(c, &n)
	if c.decode {
		*v = n + c.base
	}
}

func integer[T int16 | int32 | int64 | uint64 | time.Duration | status.Code | tensor.Kind | tracing.Point | tracing.EventKind](c *codec, v *T) {
	if !c.decode {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	n, size := binary.Varint(c.b)
	if size <= 0 {
		size = -1
	}
	c.next(size)
	*v = T(n)
}

func (c *codec) flags(list ...*bool) {
	var bits [1]byte
	for i, set := range list {
		if *set {
			bits[0] |= 1 << i
		}
	}
	c.raw(bits[:])
	for i, set := range list {
		if c.decode {
			*set = bits[0]&(1<<i) != 0
		}
	}
}

func (c *codec) raw(v []byte) {
	if c.decode {
		copy(v, c.next(len(v)))
	} else {
		c.b = append(c.b, v...)
	}
}

// text is a string after its length; encoding cuts it to maxText bytes.
func (c *codec) text(s *string) {
	n := int64(min(len(*s), maxText))
	integer(c, &n)
	if c.decode {
		*s = string(c.next(int(n)))
	} else {
		c.b = append(c.b, (*s)[:n]...)
	}
}

// resize is the length of a list. Decoding allocates the elements: each takes at least one
// byte, so that a corrupt length cannot demand more memory than its input justifies.
func resize[T any](c *codec, list *[]T) {
	n := int64(len(*list))
	integer(c, &n)
	if !c.decode {
		return
	}
	if n < 0 || n > int64(len(c.b)) {
		c.next(-1)
		n = 0
	}
	if n > 0 {
		*list = make([]T, n)
	}
}

// next returns the next n bytes of the input, none after a failure.
func (c *codec) next(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.failed, c.b = true, nil
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}
