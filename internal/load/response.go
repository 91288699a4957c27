package load

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/inference"
)

// Output is a tensor of a response. Its elements are in Strings for BYTES, and in Floats for every other data type.
type Output struct {
	Name     string
	Datatype string
	Shape    []int64
	Floats   []float64
	Strings  []string
}

// responseJSON is a JSON response over HTTP, or the JSON head of a binary one.
type responseJSON struct {
	Error   string `json:"error"`
	Outputs []struct {
		Name       string  `json:"name"`
		Datatype   string  `json:"datatype"`
		Shape      []int64 `json:"shape"`
		Data       any     `json:"data"`
		Parameters struct {
			Binary int `json:"binary_data_size"`
		} `json:"parameters"`
	} `json:"outputs"`
}

// readHTTP reads the outputs of a response whose first head bytes are JSON. Outputs in shared memory are read from
// the area at, which may be nil.
func readHTTP(body []byte, head int, at *area) ([]Output, error) {
	if head < 0 || head > len(body) {
		return nil, fmt.Errorf("the response's head has %d bytes by its header, the response has %d in all", head, len(body))
	}
	var a responseJSON
	if err := json.Unmarshal(body[:head], &a); err != nil {
		return nil, fmt.Errorf("the response is not JSON: %w", err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	rest := body[head:]
	var all []Output
	for _, o := range a.Outputs {
		var out Output
		var err error
		switch p := o.Parameters; {
		case at != nil && o.Data == nil:
			out, err = at.read(o.Name, o.Datatype, o.Shape)
		case p.Binary > len(rest) || p.Binary < 0:
			err = fmt.Errorf("its size is said to be %d bytes, %d are left", p.Binary, len(rest))
		case p.Binary > 0:
			out, err = decode(o.Datatype, rest[:p.Binary])
			rest = rest[p.Binary:]
		default:
			err = out.flatten(o.Data)
		}
		if err != nil {
			return nil, fmt.Errorf("output '%s': %w", o.Name, err)
		}
		out.Name, out.Datatype, out.Shape = o.Name, o.Datatype, o.Shape
		all = append(all, out)
	}
	return all, nil
}

// flatten appends the elements of a JSON value, flat or nested.
func (o *Output) flatten(data any) error {
	switch v := data.(type) {
	case []any:
		for _, e := range v {
			if err := o.flatten(e); err != nil {
				return err
			}
		}
	case float64:
		o.Floats = append(o.Floats, v)
	case string:
		o.Strings = append(o.Strings, v)
	case bool:
		o.Floats = append(o.Floats, truth(v))
	case nil:
	default:
		return fmt.Errorf("unexpected element %v", v)
	}
	return nil
}

func truth(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

// readProto reads the outputs of a serialised response with raw contents.
func readProto(body []byte) ([]Output, error) {
	var a inference.ModelInferResponse
	if err := proto.Unmarshal(body, &a); err != nil {
		return nil, err
	}
	if len(a.GetRawOutputContents()) != len(a.GetOutputs()) {
		return nil, fmt.Errorf("the response has %d outputs and %d raw contents", len(a.GetOutputs()), len(a.GetRawOutputContents()))
	}
	var all []Output
	for i, o := range a.GetOutputs() {
		out, err := decode(o.GetDatatype(), a.GetRawOutputContents()[i])
		if err != nil {
			return nil, fmt.Errorf("output '%s': %w", o.GetName(), err)
		}
		out.Name, out.Datatype, out.Shape = o.GetName(), o.GetDatatype(), o.GetShape()
		all = append(all, out)
	}
	return all, nil
}

// sizes holds the bytes of one element by data type.
var sizes = map[string]int{
	"BOOL": 1, "INT8": 1, "UINT8": 1, "INT16": 2, "UINT16": 2, "INT32": 4, "UINT32": 4, "FP32": 4, "INT64": 8, "UINT64": 8, "FP64": 8,
}

// decode reads the elements of a raw tensor.
func decode(datatype string, raw []byte) (o Output, err error) {
	if datatype == "BYTES" {
		for len(raw) > 0 {
			if len(raw) < 4 || uint64(len(raw)-4) < uint64(binary.LittleEndian.Uint32(raw)) {
				return o, fmt.Errorf("an element of BYTES goes beyond the %d bytes left", len(raw))
			}
			n := int(binary.LittleEndian.Uint32(raw))
			o.Strings, raw = append(o.Strings, string(raw[4:4+n])), raw[4+n:]
		}
		return o, nil
	}
	size := sizes[datatype]
	if size == 0 {
		return o, fmt.Errorf("the datatype %s is not one that the generator reads", datatype)
	}
	if len(raw)%size != 0 {
		return o, fmt.Errorf("%d bytes are no whole number of elements of %s", len(raw), datatype)
	}
	for ; len(raw) > 0; raw = raw[size:] {
		o.Floats = append(o.Floats, element(datatype, raw))
	}
	return o, nil
}

// element decodes the first element of raw.
func element(datatype string, raw []byte) float64 {
	le := binary.LittleEndian
	switch datatype {
	case "FP32":
		return float64(math.Float32frombits(le.Uint32(raw)))
	case "FP64":
		return math.Float64frombits(le.Uint64(raw))
	case "INT64":
		return float64(int64(le.Uint64(raw))) //nolint:gosec // the bits are those of a signed number
	case "UINT64":
		return float64(le.Uint64(raw))
	case "INT32":
		return float64(int32(le.Uint32(raw))) //nolint:gosec // the bits are those of a signed number
	case "UINT32":
		return float64(le.Uint32(raw))
	case "INT16":
		return float64(int16(le.Uint16(raw))) //nolint:gosec // the bits are those of a signed number
	case "UINT16":
		return float64(le.Uint16(raw))
	case "INT8":
		return float64(int8(raw[0])) //nolint:gosec // the bits are those of a signed number
	}
	return float64(raw[0])
}

// Tensor returns the output as an input of another model, with the given name.
func (o *Output) Tensor(name string) (Tensor, error) {
	t := Tensor{Name: name, Datatype: o.Datatype, Shape: o.Shape}
	for _, s := range o.Strings {
		t.Data = append(binary.LittleEndian.AppendUint32(t.Data, uint32(len(s))), s...) //nolint:gosec // lengths have 32 bits
	}
	for _, f := range o.Floats {
		switch o.Datatype {
		case "FP32":
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(float32(f)))
		case "FP64":
			t.Data = binary.LittleEndian.AppendUint64(t.Data, math.Float64bits(f))
		case "INT64":
			t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(int64(f))) //nolint:gosec // the bits are those of a signed number
		case "INT32":
			t.Data = binary.LittleEndian.AppendUint32(t.Data, uint32(int32(f))) //nolint:gosec // the bits are those of a signed number
		default:
			return t, fmt.Errorf("an output of %s is not passed on by the generator", o.Datatype)
		}
	}
	return t, nil
}
