package grpcapi

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/wire"
)

// message is a ModelInferRequest in the transport's buffers. Only fields that span two buffers are copied. It is
// read twice, because contents may precede their inputs: scan finds the fields, and decoder processes them in the
// protocol's order.
type message struct {
	incoming
	data   mem.BufferSlice // an own reference, until free
	cursor wire.Cursor
	conn   *connection // that it came over; nil if nothing is limited

	model, version, id []byte
	params             []param
	inputs, outputs    [][]byte
	raw                []wire.Span

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

// free releases the transport's buffers. Results of scan are invalid afterwards.
func (m *message) free() {
	m.data.Free()
	m.data = nil
	m.cursor.Reset()
}

// maxKept bounds the length of a list that a message keeps for reuse.
const maxKept = 256

// release returns the message to its pool.
func (m *message) release() {
	m.free()
	m.charge.Release()
	m.conn, m.refused = nil, nil
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

// scan finds the fields of the message. An error means that they are malformed.
//
// hot: no allocation in steady state.
func (m *message) scan() error {
	c := &m.cursor
	c.Start(m.data)
	for !c.Done() {
		num, typ, err := c.Tag()
		if err != nil {
			return err
		}
		if typ != protowire.BytesType || num > 7 {
			err = c.Skip(num, typ)
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
	s, err := m.cursor.Span()
	if err != nil {
		return err
	}
	if num == 7 {
		m.raw = append(m.raw, s)
		return infer.TooMany("raw_input_contents", len(m.raw))
	}
	b := m.cursor.Bytes(s)
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
		err = infer.TooMany("inputs", len(m.inputs))
	case 6:
		m.outputs = append(m.outputs, b)
		err = infer.TooMany("outputs", len(m.outputs))
	}
	if num <= 3 && !utf8.Valid(b) {
		return wire.ErrMalformed
	}
	return err
}

// param is an entry of a parameter map.
type param struct{ wire.Param }

// appendParam appends the map entry b to list.
func appendParam(list []param, b []byte) ([]param, error) {
	var p param
	err := p.Parse(b)
	list = append(list, p)
	return list, cmp.Or(err, infer.TooMany("parameters", len(list)))
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
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch {
		case f.Is(1, protowire.BytesType):
			t.name = f.Text()
		case input && f.Is(2, protowire.BytesType):
			t.dtype = f.Text()
		case input && f.Is(3, protowire.BytesType):
			t.packedDims(&f)
		case input && f.Is(3, protowire.VarintType):
			t.dims = append(t.dims, int64(f.Varint()))
			f.Err = cmp.Or(f.Err, infer.TooMany("dimensions", len(t.dims)))
		case input && f.Is(5, protowire.BytesType):
			t.addContents(f.Bytes())
		case f.Is(params, protowire.BytesType):
			if b := f.Bytes(); f.Err == nil {
				t.params, f.Err = appendParam(t.params, b)
			}
		default:
			f.Skip()
		}
	}
	return t, f.Err
}

func (t *tensorFields) packedDims(f *wire.Fields) {
	list := wire.Fields{Rest: f.Bytes()}
	for len(list.Rest) > 0 && list.Err == nil {
		t.dims = append(t.dims, int64(list.Varint()))
		list.Err = cmp.Or(list.Err, infer.TooMany("dimensions", len(t.dims)))
	}
	f.Err = cmp.Or(f.Err, list.Err)
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
		if string(t.params[i].Name) == key {
			return &t.params[i]
		}
	}
	return nil
}
