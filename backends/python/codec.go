package python

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

const (
	requestStart uint32 = 1 << iota
	requestEnd
	requestNamed
	requestMany
)

const (
	requestBytes = 40
	partBytes    = 24
)

// appendRequest encodes a request without its inputs. appendExtra sets the size of the extra part.
func appendRequest(b []byte, m *infer.Meta, inputs int) []byte {
	var flags uint32
	if m.Sequence.Start {
		flags |= requestStart
	}
	if m.Sequence.End {
		flags |= requestEnd
	}
	if m.Sequence.Name != "" {
		flags |= requestNamed
	}
	b = binary.LittleEndian.AppendUint64(b, m.Sequence.ID)
	b = binary.LittleEndian.AppendUint64(b, m.Priority)
	b = binary.LittleEndian.AppendUint64(b, m.Timeout)
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint16(b, uint16(inputs))
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

// appendExtra appends the extra part to the request that begins at offset at, unless all its fields have their defaults.
func appendExtra(b []byte, at int, m *infer.Meta, q *backends.Request) []byte {
	trace := q.Trace.Carrier(q.Step, q.SubRun)
	if m.ID == "" && m.Sequence.Name == "" && len(m.Params) == 0 && len(q.RequestedOutputs) == 0 && trace == "" {
		return b
	}
	from := len(b)
	b = appendText(b, m.ID)
	b = appendText(b, m.Sequence.Name)
	b = appendParams(b, m.Params)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(q.RequestedOutputs)))
	for _, name := range q.RequestedOutputs {
		b = appendText(b, name)
	}
	b = padded(appendText(b, trace), from)
	binary.LittleEndian.PutUint32(b[at+32:], uint32(len(b)-from))
	return b
}

// padded appends zeros until a multiple of 8 bytes follows from.
func padded(b []byte, from int) []byte {
	for (len(b)-from)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendParams(b []byte, list infer.Params) []byte {
	n := min(len(list), math.MaxUint16)
	b = binary.LittleEndian.AppendUint16(b, uint16(n))
	for i := range list[:n] {
		p := &list[i]
		b = appendText(b, p.Key)
		b = append(b, byte(p.Kind))
		switch p.Kind {
		case infer.ParamBool:
			v := uint64(0)
			if p.Bool {
				v = 1
			}
			b = binary.LittleEndian.AppendUint64(b, v)
		case infer.ParamInt:
			b = binary.LittleEndian.AppendUint64(b, uint64(p.Int))
		case infer.ParamUint:
			b = binary.LittleEndian.AppendUint64(b, p.Uint)
		case infer.ParamDouble:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(p.Double))
		case infer.ParamString:
			b = appendText(b, p.String)
		}
	}
	return b
}

// appendPart encodes the description of a tensor. first replaces the first dimension unless it is negative. gpu is the id of the GPU
// region with the tensor, or 0.
func appendPart(b []byte, index int, t *tensor.Tensor, first int64, gpu uint32, off, size int) []byte {
	dims := t.Shape.Dims()
	b = binary.LittleEndian.AppendUint16(b, uint16(index))
	b = append(b, byte(t.DType), byte(len(dims)))
	b = binary.LittleEndian.AppendUint32(b, gpu)
	b = binary.LittleEndian.AppendUint64(b, uint64(off))
	b = binary.LittleEndian.AppendUint64(b, uint64(size))
	for i, d := range dims {
		if i == 0 && first >= 0 {
			d = first
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	return b
}

// aligned returns the next offset at which a tensor may begin.
func aligned(n int) int { return (n + align - 1) &^ (align - 1) }

// atGPU reports whether a tensor has bytes at a device.
func atGPU(t *tensor.Tensor) bool {
	return t.Present() && t.Len > 0 && t.Buf.Place().Kind == tensor.Device
}

// inputBytes returns the size of the region that the inputs of a batch on the host need.
func inputBytes(b *backends.Batch) int {
	n := 0
	for i := range b.In {
		if b.In[i].Present() && !atGPU(&b.In[i]) {
			n = aligned(n + b.In[i].Len)
		}
	}
	return n
}

// cursor is the position of the next request's rows in an input.
type cursor struct {
	off  int
	rest []byte // of BYTES
	gpu  uint32 // the id of the GPU region, or 0
}

// rows returns the offset and size of a request's rows in the region, and advances.
func (c *cursor) rows(t *tensor.Tensor, batchRows, rows int) (off, size int) {
	off = c.off
	switch {
	case rows == batchRows:
		size = t.Len
	case t.DType == tensor.Bytes:
		size = c.elements(t.Shape.Elements() / int64(batchRows) * int64(rows))
	default:
		size = t.Len / batchRows * rows
	}
	c.off += size
	return off, size
}

// elements skips n BYTES elements and returns their size.
func (c *cursor) elements(n int64) int {
	before := len(c.rest)
	for ; n > 0; n-- {
		_, rest, ok := tensor.NextBytes(c.rest)
		if !ok {
			break
		}
		c.rest = rest
	}
	return before - len(c.rest)
}

// reader decodes bytes of a worker, which are not trusted: past the end it returns zeros and sets bad.
type reader struct {
	b   []byte
	at  int
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b)-r.at {
		r.bad = true
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

// number is take for at most 8 bytes: past the end they are zero.
func (r *reader) number(n int) []byte {
	if b := r.take(n); b != nil {
		return b
	}
	return make([]byte, 8)
}

func (r *reader) u8() uint8   { return r.number(1)[0] }
func (r *reader) u16() uint16 { return binary.LittleEndian.Uint16(r.number(2)) }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.number(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.number(8)) }

func (r *reader) text() string { return string(r.take(int(r.u32()))) }

// params decodes parameters and appends them to list.
func (r *reader) params(list infer.Params) infer.Params {
	for n := r.u16(); n > 0 && !r.bad; n-- {
		p := infer.Param{Key: r.text()}
		switch kind := r.u8(); kind {
		case 0:
			p.Kind, p.Bool = infer.ParamBool, r.u64() != 0
		case 1:
			p.Kind, p.Int = infer.ParamInt, int64(r.u64())
		case 2:
			p.Kind, p.Uint = infer.ParamUint, r.u64()
		case 3:
			p.Kind, p.Double = infer.ParamDouble, math.Float64frombits(r.u64())
		case 4:
			p.Kind, p.String = infer.ParamString, r.text()
		default:
			r.bad = true
		}
		list = append(list, p)
	}
	return list
}

// part is the description of a tensor.
type part struct {
	index     uint16
	dtype     tensor.DType
	shape     tensor.Shape
	gpu       uint32 // the id of the GPU region with the tensor, or 0
	off, size uint64
}

// named is the index of a tensor whose name is in the extra part.
const named = math.MaxUint16

func (r *reader) part() (p part) {
	p.index = r.u16()
	p.dtype = tensor.DType(r.u8())
	rank := int(r.u8())
	p.gpu = r.u32()
	p.off, p.size = r.u64(), r.u64()
	var few [8]int64
	dims := few[:0]
	for ; rank > 0 && !r.bad; rank-- {
		dims = append(dims, int64(r.u64()))
	}
	p.shape = tensor.Of(dims...)
	return p
}

// valid reports whether a tensor lies within memory of n bytes and its size matches its type and shape.
func (p *part) valid(n int) bool {
	if p.size > uint64(n) || p.off > uint64(n)-p.size {
		return false
	}
	elements, each := p.shape.Elements(), uint64(p.dtype.Size())
	if elements < 0 || p.dtype.String() == tensor.Invalid.String() {
		return false
	}
	if p.dtype == tensor.Bytes {
		return uint64(elements) <= p.size/4
	}
	return uint64(elements) <= p.size && uint64(elements)*each == p.size
}

// codeOf returns the status code of a number, and Internal for an unknown one.
func codeOf(b uint8) status.Code {
	if c := status.Code(b); c <= status.ResourceExhausted {
		return c
	}
	return status.Internal
}

// The parameters of an error.
const (
	paramReason = "reason"
	paramStep   = "step"
	paramRetry  = "retry_after_ns"
	paramFinish = "predicted_finish_ns"
)

// detailsOf returns the parameters of an error, none for one that says no more than its code.
func detailsOf(err error) (list infer.Params) {
	d := status.DetailsOf(err)
	if !d.Own {
		return nil
	}
	list = append(list, infer.Param{Key: paramReason, Kind: infer.ParamString, String: string(d.Reason)})
	if d.Step != "" {
		list = append(list, infer.Param{Key: paramStep, Kind: infer.ParamString, String: d.Step})
	}
	for _, t := range []struct {
		key string
		ns  time.Duration
	}{{paramRetry, d.RetryAfter}, {paramFinish, d.Finish}} {
		if t.ns > 0 {
			list = append(list, infer.Param{Key: t.key, Kind: infer.ParamInt, Int: int64(t.ns)})
		}
	}
	return list
}

// longestDelay bounds the times of an error of a worker.
const longestDelay = 24 * time.Hour

// failureOf returns the error of a worker. The step of a model that it called is behind the worker's own.
func failureOf(code status.Code, text string, params infer.Params) error {
	e := &status.Error{Code: code, Msg: strings.ToValidUTF8(text, "\uFFFD")}
	for i := range params {
		switch p := &params[i]; {
		case p.Key == paramReason:
			e.Reason = status.ParseReason(p.String)
		case p.Key == paramStep && p.String != "":
			e.Step = "/" + strings.ToValidUTF8(p.String, "\uFFFD")
		case p.Key == paramRetry:
			e.RetryAfter = min(max(time.Duration(p.Int), 0), longestDelay)
		case p.Key == paramFinish:
			e.Finish = min(max(time.Duration(p.Int), 0), longestDelay)
		}
	}
	return e
}

// States of responses.
const (
	stateOK uint8 = iota
	stateError
	stateNone
	stateReschedule
	stateRaised
	stateUnexecuted
)

// largeBytes is the least size of a tensor that stays in the memory of the worker; smaller ones are copied.
const largeBytes = 32 << 10

// answer is a decoded response of a worker. Its slices are reused.
type response struct {
	state  uint8
	code   status.Code
	parts  []part
	text   string
	params infer.Params
	names  []string
}

// read decodes a response.
//
// hot: no allocation unless it has an extra part.
func (a *response) read(r *reader) {
	a.state = r.u8()
	a.code = codeOf(r.u8())
	n := int(r.u16())
	extra := int(r.u32())
	a.parts, a.text, a.params, a.names = a.parts[:0], "", a.params[:0], a.names[:0]
	for ; n > 0 && !r.bad; n-- {
		a.parts = append(a.parts, r.part())
	}
	if extra == 0 || r.bad {
		return
	}
	x := reader{b: r.take(extra)}
	a.text = x.text()
	a.params = x.params(a.params)
	for i := range a.parts {
		if a.parts[i].index == named && !x.bad {
			a.names = append(a.names, x.text())
		}
	}
	r.bad = r.bad || x.bad
}

// err returns the error of the response, or nil.
func (a *response) err() error {
	if a.state != stateError && a.state != stateRaised {
		return nil
	}
	return failureOf(a.code, a.text, a.params)
}
