package trace

import (
	"encoding/binary"
	"errors"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
)

// maxText bounds a text of a kept record: an error may repeat what a client wrote.
const maxText = 1 << 10

// Append appends a record as bytes: small numbers are short, and times are those since
// the record began.
//
// hot: no allocation when b has room.
func Append(b []byte, r *tracing.Record) []byte {
	b = append(b, r.ID[:]...)
	b = append(b, r.Span[:]...)
	b = append(b, r.Parent[:]...)
	b = binary.AppendVarint(b, r.Began)
	b = binary.AppendVarint(b, r.BeganAt)
	b = appendText(b, r.Model)
	b = binary.AppendVarint(b, r.Version)
	b = appendText(b, r.Request)
	b = append(b, bits(r.Ensemble, r.Failed, r.Captured), byte(r.Code))
	b = appendText(b, r.Error)
	b = binary.AppendUvarint(b, uint64(len(r.Moments)))
	for _, m := range r.Moments {
		b = binary.AppendVarint(append(b, byte(m.Point)), m.Ns-r.BeganAt)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Steps)))
	for i := range r.Steps {
		b = appendStep(b, &r.Steps[i], r.BeganAt)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Events)))
	for i := range r.Events {
		b = appendEvent(b, &r.Events[i], r.BeganAt)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Params)))
	for _, p := range r.Params {
		b = appendText(appendText(b, p.Key), p.Value)
	}
	return b
}

func bits(list ...bool) (b byte) {
	for i, set := range list {
		if set {
			b |= 1 << i
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), maxText)]
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendPlace(b []byte, p tensor.Place) []byte {
	return binary.AppendVarint(append(b, byte(p.Kind)), int64(p.ID))
}

func appendStep(b []byte, s *tracing.Step, base int64) []byte {
	b = append(b, s.Span[:]...)
	b = append(b, bits(s.Own, s.Cached, s.Failed, s.Native, s.Held != 0), byte(s.Code))
	for _, v := range [...]int64{int64(s.Node), int64(s.After), int64(s.Wave), s.Version, s.Ready - base} {
		b = binary.AppendVarint(b, v)
	}
	b = appendText(b, s.Model)
	b = binary.AppendVarint(b, s.Enqueued-s.Ready)
	b = binary.AppendVarint(b, s.Done-s.Ready)
	b = binary.AppendUvarint(b, s.Batch)
	if s.Batch == 0 {
		return b
	}
	x := &s.Execution
	for _, v := range [...]int64{
		x.Start - s.Ready, x.InputEnd - s.Ready, x.InferEnd - s.Ready, x.End - s.Ready,
		int64(x.Instance), int64(x.Rows), int64(x.BatchRows), int64(x.Members), x.Elements, x.Padding,
		int64(x.Before), x.BeforeEnd - s.Ready, x.Newest - s.Ready,
	} {
		b = binary.AppendVarint(b, v)
	}
	if x.Held != 0 {
		b = binary.AppendVarint(b, x.Held-s.Ready)
	}
	return appendPlace(b, x.Place)
}

func appendEvent(b []byte, e *tracing.Event, base int64) []byte {
	b = binary.AppendVarint(append(b, byte(e.Kind)), e.At-base)
	b = binary.AppendVarint(b, int64(e.Node))
	b = appendText(appendText(b, e.Tensor), e.Reason)
	b = binary.AppendVarint(b, e.Bytes)
	return appendPlace(appendPlace(b, e.From), e.To)
}

var errBroken = errors.New("a kept trace is broken")

// Decode reads what Append wrote. It fails for anything else.
func Decode(b []byte) (*tracing.Record, error) {
	d := &decoder{b: b}
	r := &tracing.Record{}
	copy(r.ID[:], d.take(len(r.ID)))
	copy(r.Span[:], d.take(len(r.Span)))
	copy(r.Parent[:], d.take(len(r.Parent)))
	r.Began, r.BeganAt = d.int(), d.int()
	r.Model, r.Version, r.Request = d.text(), d.int(), d.text()
	flags := d.byte()
	r.Ensemble, r.Failed, r.Captured = flags&1 != 0, flags&2 != 0, flags&4 != 0
	r.Code, r.Error = status.Code(d.byte()), d.text()
	for range d.count() {
		r.Moments = append(r.Moments, tracing.Moment{Point: tracing.Point(d.byte()), Ns: d.int() + r.BeganAt})
	}
	for range d.count() {
		r.Steps = append(r.Steps, d.step(r.BeganAt))
	}
	for range d.count() {
		r.Events = append(r.Events, d.event(r.BeganAt))
	}
	for range d.count() {
		r.Params = append(r.Params, tracing.Param{Key: d.text(), Value: d.text()})
	}
	if d.failed || len(d.b) != 0 {
		return nil, errBroken
	}
	return r, nil
}

type decoder struct {
	b      []byte
	failed bool
}

// take returns the next n bytes, none after a failure.
func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.failed, d.b = true, nil
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		n = -1
	}
	d.take(n)
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		n = -1
	}
	d.take(n)
	return v
}

// count returns how many entries follow, each of which takes a byte at least.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.take(-1)
		return 0
	}
	return int(n)
}

func (d *decoder) text() string { return string(d.take(d.count())) }

func (d *decoder) place() tensor.Place {
	return tensor.Place{Kind: tensor.Kind(d.byte()), ID: int16(d.int())}
}

func (d *decoder) step(base int64) (s tracing.Step) {
	copy(s.Span[:], d.take(len(s.Span)))
	flags := d.byte()
	s.Own, s.Cached, s.Failed, s.Native = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0
	s.Code = status.Code(d.byte())
	s.Node, s.After, s.Wave, s.Version = int32(d.int()), int32(d.int()), int32(d.int()), d.int()
	s.Ready = d.int() + base
	s.Model = d.text()
	s.Enqueued, s.Done = d.int()+s.Ready, d.int()+s.Ready
	if s.Batch = d.uint(); s.Batch == 0 {
		return s
	}
	x := &s.Execution
	x.Start, x.InputEnd, x.InferEnd, x.End = d.int()+s.Ready, d.int()+s.Ready, d.int()+s.Ready, d.int()+s.Ready
	x.Instance, x.Rows, x.BatchRows, x.Members = int32(d.int()), int32(d.int()), int32(d.int()), int32(d.int())
	x.Elements, x.Padding = d.int(), d.int()
	x.Before, x.BeforeEnd, x.Newest = uint64(d.int()), d.int()+s.Ready, d.int()+s.Ready
	if flags&16 != 0 {
		x.Held = d.int() + s.Ready
	}
	x.Place = d.place()
	return s
}

func (d *decoder) event(base int64) tracing.Event {
	return tracing.Event{
		Kind: tracing.EventKind(d.byte()), At: d.int() + base, Node: int32(d.int()), Tensor: d.text(), Reason: d.text(),
		Bytes: d.int(), From: d.place(), To: d.place(),
	}
}
