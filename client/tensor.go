package client

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/tensor"
)

// Tensor is an input or an output.
type Tensor struct {
	Name  string
	DType tensor.DType
	// Shape includes the batch dimension if the model batches.
	Shape []int64
	// Data has the elements in row-major order, little-endian. Each element of BYTES follows its length in four
	// bytes.
	Data []byte
	// Region is the part of a shared memory region that has the elements instead of Data, unless nil.
	Region *Region
}

// Region is a part of a shared memory region that was registered with a server.
type Region struct {
	Name         string
	Offset, Size uint64 // in bytes
}

// Text returns a tensor of type BYTES. For example: Text("TEXT", []int64{1, 2}, "hello", "world").
func Text[T string | []byte](name string, shape []int64, values ...T) Tensor {
	t := Tensor{Name: name, DType: tensor.Bytes, Shape: shape}
	for _, v := range values {
		t.Data = tensor.AppendBytes(t.Data, v)
	}
	return t
}

// Number is an element type with a Go type of the same size.
type Number interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64 | bool
}

// Of returns a tensor of numbers. Its data type is that of T.
func Of[T Number](name string, shape []int64, values ...T) Tensor {
	t := Tensor{Name: name, DType: dtypeOf[T](), Shape: shape}
	t.Data, _ = binary.Append(nil, binary.LittleEndian, values) // these types have fixed sizes
	return t
}

// goTypes has the Go type of each data type of numbers.
var goTypes = [tensor.BF16 + 1]reflect.Type{
	tensor.Bool: reflect.TypeFor[bool](),
	tensor.Int8: reflect.TypeFor[int8](), tensor.Int16: reflect.TypeFor[int16](), tensor.Int32: reflect.TypeFor[int32](),
	tensor.Int64: reflect.TypeFor[int64](), tensor.Uint8: reflect.TypeFor[uint8](), tensor.Uint16: reflect.TypeFor[uint16](),
	tensor.Uint32: reflect.TypeFor[uint32](), tensor.Uint64: reflect.TypeFor[uint64](),
	tensor.FP32: reflect.TypeFor[float32](), tensor.FP64: reflect.TypeFor[float64](),
}

func dtypeOf[T Number]() tensor.DType {
	return tensor.DType(slices.Index(goTypes[:], reflect.TypeFor[T]()))
}

var errNoTensor = errors.New("there is no such tensor")

// Values returns the elements of a tensor whose data type is that of T.
func Values[T Number](t *Tensor) ([]T, error) {
	if t == nil {
		return nil, errNoTensor
	}
	if want := dtypeOf[T](); t.DType != want {
		return nil, fmt.Errorf("tensor '%s' is %s, expected %s", t.Name, t.DType, want)
	}
	list, err := t.numbers()
	out, _ := list.([]T)
	return out, err
}

// numbers returns the elements of a tensor of numbers as a slice of its Go type.
func (t *Tensor) numbers() (any, error) {
	size := t.DType.Size()
	if len(t.Data)%size != 0 {
		return nil, fmt.Errorf("tensor '%s' has %d bytes, expected a multiple of %d", t.Name, len(t.Data), size)
	}
	out := reflect.MakeSlice(reflect.SliceOf(goTypes[t.DType]), len(t.Data)/size, len(t.Data)/size).Interface()
	_, err := binary.Decode(t.Data, binary.LittleEndian, out)
	return out, err
}

// Strings returns the elements of a tensor of type BYTES.
func (t *Tensor) Strings() ([]string, error) {
	if t == nil {
		return nil, errNoTensor
	}
	if t.DType != tensor.Bytes {
		return nil, fmt.Errorf("tensor '%s' is %s, expected %s", t.Name, t.DType, tensor.Bytes)
	}
	out := []string{}
	for rest := t.Data; len(rest) > 0; {
		elem, next, ok := tensor.NextBytes(rest)
		if !ok {
			return nil, fmt.Errorf("tensor '%s' ends inside an element", t.Name)
		}
		out, rest = append(out, string(elem)), next
	}
	return out, nil
}

// wire is the JSON form of a tensor.
type wire struct {
	Name       string          `json:"name"`
	Datatype   string          `json:"datatype"`
	Shape      []int64         `json:"shape"`
	Parameters *wireParams     `json:"parameters,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// wireParams is the parameters of a request, of an input or output, and of a requested output.
type wireParams struct {
	BinaryOutput bool `json:"binary_data_output,omitempty"`
	Binary       bool `json:"binary_data,omitempty"`
	BinarySize   *int `json:"binary_data_size,omitempty"`
	wireRegion
}

// wireRegion is the parameters of a tensor in shared memory.
type wireRegion struct {
	Region string `json:"shared_memory_region,omitempty"`
	Offset uint64 `json:"shared_memory_offset,omitempty"`
	Size   uint64 `json:"shared_memory_byte_size,omitempty"`
}

func (r *Region) wire() *wireParams {
	return &wireParams{wireRegion: wireRegion{r.Name, r.Offset, r.Size}}
}

// MarshalJSON encodes the tensor with its elements in a flat list.
func (t *Tensor) MarshalJSON() ([]byte, error) {
	if t.Region != nil {
		return json.Marshal(wire{Name: t.Name, Datatype: t.DType.String(), Shape: t.Shape, Parameters: t.Region.wire()})
	}
	data, err := t.elements()
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(wire{Name: t.Name, Datatype: t.DType.String(), Shape: t.Shape, Data: raw})
}

// UnmarshalJSON decodes a tensor whose elements are a flat list in data.
func (t *Tensor) UnmarshalJSON(b []byte) error {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*t = Tensor{Name: w.Name, DType: tensor.ParseDType(w.Datatype), Shape: w.Shape}
	if w.Data == nil {
		return nil
	}
	return t.parse(w.Data)
}

// elements returns the tensor's elements as a slice for encoding/json.
func (t *Tensor) elements() (any, error) {
	switch {
	case t.DType == tensor.Bytes:
		list, err := t.Strings()
		if slices.ContainsFunc(list, func(s string) bool { return !utf8.ValidString(s) }) {
			return nil, fmt.Errorf("tensor '%s' has an element that is not UTF-8 and cannot be written as JSON", t.Name)
		}
		return list, err
	case t.DType == tensor.Uint8: // encoding/json would write bytes as base64
		out := make([]uint16, len(t.Data))
		for i, b := range t.Data {
			out[i] = uint16(b)
		}
		return out, nil
	case goTypes[t.DType] == nil:
		return nil, fmt.Errorf("tensor '%s' of %s cannot be written as JSON", t.Name, t.DType)
	}
	return t.numbers()
}

// parse sets Data from elements in JSON.
func (t *Tensor) parse(data []byte) error {
	element := goTypes[t.DType]
	switch t.DType {
	case tensor.Bytes:
		element = reflect.TypeFor[string]()
	case tensor.Uint8: // encoding/json would read base64
		element = reflect.TypeFor[uint16]()
	}
	if element == nil {
		return fmt.Errorf("tensor '%s' of %s cannot be read from JSON", t.Name, t.DType)
	}
	to := reflect.New(reflect.SliceOf(element))
	if err := json.Unmarshal(data, to.Interface()); err != nil {
		return fmt.Errorf("tensor '%s': %w", t.Name, err)
	}
	list := to.Elem().Interface()
	switch t.DType {
	case tensor.Bytes:
		t.Data = Text("", nil, list.([]string)...).Data //nolint:errcheck,forcetypeassert // made above
	case tensor.Uint8:
		for _, v := range list.([]uint16) { //nolint:errcheck,forcetypeassert // made above
			if v > 0xff {
				return fmt.Errorf("tensor '%s' of %s has element %d", t.Name, t.DType, v)
			}
			t.Data = append(t.Data, uint8(v))
		}
	default:
		t.Data, _ = binary.Append(nil, binary.LittleEndian, list) // these types have fixed sizes
	}
	return nil
}
