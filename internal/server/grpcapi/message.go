package grpcapi

import (
	"cmp"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/shm"
)

// message is a ModelInferRequest in the transport's buffers. Only fields that span two buffers are copied. It is
// read twice, because contents may precede their inputs: scan finds the fields, and decoder processes them in the
// protocol's order.
type message struct {
	data   mem.BufferSlice // an own reference, until free
	cursor cursor
	charge infer.Charge // bytes in flight of the request

	model, version, id []byte
	params             []param
	inputs, outputs    [][]byte
	raw                []wireSpan

	tensor tensorFields
	wants  []outputOptions
	// windows are those of inputs and outputs in shared memory. Their regions stay in use until the response is complete.
	windows []*shm.Window
}

var messages pool.Of[message]

// keep retains the transport's buffers. A client that sends two messages in one unary call gets here twice; the
// last one counts.
func (m *message) keep(data mem.BufferSlice) {
	m.free()
	data.Ref()
	m.data = data
}

// chargeReceived charges the received bytes, part of which l may have counted. It fails over the limit.
func (m *message) chargeReceived(f *infer.InFlight, l *connection) error {
	n := int64(m.data.Len())
	m.charge = f.Charge()
	l.chargeMessage(&m.charge, n)
	if rest := n - m.charge.Bytes(); rest > 0 {
		return m.charge.Acquire(rest)
	}
	return f.Exceeded()
}

// free releases the transport's buffers. Results of scan are invalid afterwards.
func (m *message) free() {
	m.data.Free()
	m.data = nil
	m.cursor.data, m.cursor.cur = nil, nil
}

// maxKept bounds the length of a list that a message keeps for reuse.
const maxKept = 256

// release returns the message to its pool.
func (m *message) release() {
	m.free()
	m.charge.Release()
	m.windows = closeWindows(m.windows)
	m.model, m.version, m.id = nil, nil, nil
	m.params, m.inputs, m.outputs = reuse(m.params), reuse(m.inputs), reuse(m.outputs)
	m.raw, m.wants = reuse(m.raw), reuse(m.wants)
	m.tensor.reset()
	messages.Put(m)
}

func reuse[T any](list []T) []T {
	clear(list)
	if cap(list) > maxKept {
		return nil
	}
	return list[:0]
}

// maxElements bounds each list of a request: a field of two bytes must not cost the server a hundred.
const maxElements = 1 << 16

// scan finds the fields of the message. An error means that they are malformed.
//
// hot: no allocation in steady state.
func (m *message) scan() error {
	c := &m.cursor
	c.start(m.data)
	for !c.done() {
		num, typ, err := c.tag()
		if err != nil {
			return err
		}
		if typ != protowire.BytesType || num > 7 {
			err = c.skip(num, typ)
		} else {
			err = m.field(num)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// field reads one length-delimited field.
func (m *message) field(num protowire.Number) error {
	s, err := m.cursor.span()
	if err != nil {
		return err
	}
	if num == 7 {
		m.raw = append(m.raw, s)
		return tooMany("raw_input_contents", len(m.raw))
	}
	b := m.cursor.bytes(s)
	switch num {
	case 1:
		m.model = b
	case 2:
		m.version = b
	case 3:
		m.id = b
	case 4:
		m.params, err = appendParam(m.params, b)
	case 5:
		m.inputs = append(m.inputs, b)
		err = tooMany("inputs", len(m.inputs))
	case 6:
		m.outputs = append(m.outputs, b)
		err = tooMany("outputs", len(m.outputs))
	}
	if num <= 3 && !utf8.Valid(b) {
		return errWire
	}
	return err
}

func tooMany(what string, n int) error {
	if n <= maxElements {
		return nil
	}
	return status.Errorf(status.InvalidArg, "request has more than %d %s", maxElements, what)
}

// param is an entry of a parameter map. It refers to the message's bytes.
type param struct {
	infer.Param        // without Key and String
	key, text   []byte // text is the value of a string
	set         bool   // has a value
}

// appendParam appends the map entry b to list.
func appendParam(list []param, b []byte) ([]param, error) {
	var p param
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			p.key = f.text()
		case f.is(2, protowire.BytesType):
			if b := f.bytes(); f.err == nil {
				f.err = p.value(b)
			}
		default:
			f.skip()
		}
	}
	list = append(list, p)
	return list, cmp.Or(f.err, tooMany("parameters", len(list)))
}

// value decodes an InferParameter. The last of several values counts.
func (p *param) value(b []byte) error {
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(1, protowire.VarintType):
			p.Param = infer.Param{Kind: infer.ParamBool, Bool: f.varint() != 0}
		case f.is(2, protowire.VarintType):
			p.Param = infer.Param{Kind: infer.ParamInt, Int: int64(f.varint())}
		case f.is(3, protowire.BytesType):
			p.Param, p.text = infer.Param{Kind: infer.ParamString}, f.text()
		case f.is(4, protowire.Fixed64Type):
			p.Param = infer.Param{Kind: infer.ParamDouble, Double: math.Float64frombits(f.fixed64())}
		case f.is(5, protowire.VarintType):
			p.Param = infer.Param{Kind: infer.ParamUint, Uint: f.varint()}
		default:
			f.skip()
			continue
		}
		p.set = true
	}
	return f.err
}

// tensorFields is an InferInputTensor or, without the last three fields, an InferRequestedOutputTensor.
type tensorFields struct {
	name, dtype []byte
	dims        []int64
	params      []param
	contents    []byte
	typed       bool // has contents, possibly empty
	merged      bool // contents are own memory
}

func (t *tensorFields) reset() {
	*t = tensorFields{dims: reuse(t.dims), params: reuse(t.params)}
}

// tensorOf decodes an InferInputTensor or an InferRequestedOutputTensor. The result is valid until the next call.
func (m *message) tensorOf(b []byte, input bool) (*tensorFields, error) {
	t := &m.tensor
	t.reset()
	params := protowire.Number(2)
	if input {
		params = 4
	}
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			t.name = f.text()
		case input && f.is(2, protowire.BytesType):
			t.dtype = f.text()
		case input && f.is(3, protowire.BytesType):
			t.packedDims(&f)
		case input && f.is(3, protowire.VarintType):
			t.dims = append(t.dims, int64(f.varint()))
			f.err = cmp.Or(f.err, tooMany("dimensions", len(t.dims)))
		case input && f.is(5, protowire.BytesType):
			t.addContents(f.bytes())
		case f.is(params, protowire.BytesType):
			if b := f.bytes(); f.err == nil {
				t.params, f.err = appendParam(t.params, b)
			}
		default:
			f.skip()
		}
	}
	return t, f.err
}

func (t *tensorFields) packedDims(f *fields) {
	list := fields{rest: f.bytes()}
	for len(list.rest) > 0 && list.err == nil {
		t.dims = append(t.dims, int64(list.varint()))
		list.err = cmp.Or(list.err, tooMany("dimensions", len(t.dims)))
	}
	f.err = cmp.Or(f.err, list.err)
}

// addContents merges contents in several parts: by protobuf's rules the concatenated encodings are the encoding of
// the whole.
func (t *tensorFields) addContents(b []byte) {
	switch {
	case !t.typed:
		t.contents, t.typed = b, true
	case !t.merged:
		t.contents, t.merged = slices.Concat(t.contents, b), true
	default: // in place: a copy for each of a million parts would take hours
		t.contents = append(t.contents, b...)
	}
}

// find returns the parameter with this name, the last one of several, or nil.
func (t *tensorFields) find(key string) *param {
	for i := len(t.params) - 1; i >= 0; i-- {
		if string(t.params[i].key) == key {
			return &t.params[i]
		}
	}
	return nil
}
