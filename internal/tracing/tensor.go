package tracing

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Activity is the point at which a tensor of a traced request was recorded.
type Activity uint8

// The activities, as trace files name them.
const (
	TensorQueueInput Activity = iota
	TensorBackendInput
	TensorBackendOutput
)

var activityNames = [...]string{"TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_INPUT", "TENSOR_BACKEND_OUTPUT"}

// String returns the activity's name in trace files.
func (a Activity) String() string { return activityNames[a] }

// seen is a recorded tensor of a step, or of the request for node -1.
type seen struct {
	output       bool
	node, subRun int32
	at           int64
	text         []byte // its JSON
}

// Tensors reports whether the trace records tensors. Callers check it before they copy tensors to the host.
func (t *Trace) Tensors() bool {
	return t.Sampled() && t.set.level&tensors != 0 && t.set.file != nil
}

// Tensor records an input or output of a step, or of the request for node -1. It borrows x, which must be in host
// memory. It does nothing unless Tensors reports true.
func (t *Trace) Tensor(output bool, node, subRun int32, name string, x *tensor.Tensor) {
	if !t.Tensors() {
		return
	}
	s := seen{output: output, node: node, subRun: subRun, at: telemetry.Now(), text: appendTensor(nil, name, x)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.seen) < maxEntries {
		t.seen = append(t.seen, s)
	}
}

// appendTensor appends a tensor as a JSON object. Its elements and its shape are strings, separated by commas; for
// example "shape":"1,3". Half-precision tensors have no elements, as in Triton.
func appendTensor(b []byte, name string, x *tensor.Tensor) []byte {
	b = jsontext.AppendValid(append(b, `{"name":`...), name)
	b = jsontext.AppendValid(append(b, `,"data":`...), string(appendElements(nil, x.DType, x.Bytes())))
	b = append(b, `,"shape":"`...)
	for i, n := range x.Shape.Dims() {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return append(append(append(b, `","dtype":"`...), x.DType.String()...), `"}`...)
}

func appendElements(b []byte, d tensor.DType, data []byte) []byte {
	switch d {
	case tensor.Bytes:
		return appendTexts(b, data)
	case tensor.FP16, tensor.BF16:
		return b
	}
	n := d.Size()
	for i := 0; n > 0 && i+n <= len(data); i += n {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendElement(b, d, data[i:i+n])
	}
	return b
}

// appendTexts appends the elements of a BYTES tensor, each in quotes.
func appendTexts(b, data []byte) []byte {
	for first := true; len(data) >= 4; first = false {
		n := uint64(binary.LittleEndian.Uint32(data))
		if data = data[4:]; n > uint64(len(data)) {
			return b
		}
		if !first {
			b = append(b, ',')
		}
		quoted, _ := json.Marshal(string(data[:n])) // a string always has a JSON form
		b, data = append(b, quoted...), data[n:]
	}
	return b
}

func appendElement(b []byte, d tensor.DType, e []byte) []byte {
	le := binary.LittleEndian
	switch d {
	case tensor.Bool:
		return strconv.AppendInt(b, int64(min(e[0], 1)), 10)
	case tensor.Uint8:
		return strconv.AppendUint(b, uint64(e[0]), 10)
	case tensor.Uint16:
		return strconv.AppendUint(b, uint64(le.Uint16(e)), 10)
	case tensor.Uint32:
		return strconv.AppendUint(b, uint64(le.Uint32(e)), 10)
	case tensor.Uint64:
		return strconv.AppendUint(b, le.Uint64(e), 10)
	case tensor.Int8:
		return strconv.AppendInt(b, int64(int8(e[0])), 10)
	case tensor.Int16:
		return strconv.AppendInt(b, int64(int16(le.Uint16(e))), 10)
	case tensor.Int32:
		return strconv.AppendInt(b, int64(int32(le.Uint32(e))), 10)
	case tensor.Int64:
		return strconv.AppendInt(b, int64(le.Uint64(e)), 10)
	case tensor.FP32:
		return strconv.AppendFloat(b, float64(math.Float32frombits(le.Uint32(e))), 'g', -1, 32)
	case tensor.FP64:
		return strconv.AppendFloat(b, math.Float64frombits(le.Uint64(e)), 'g', -1, 64)
	}
	return b
}
