package client

import (
	"encoding/binary"
	"errors"
	"fmt"

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

func dtypeOf[T Number]() tensor.DType {
	var zero T
	switch any(zero).(type) {
	case bool:
		return tensor.Bool
	case int8:
		return tensor.Int8
	case int16:
		return tensor.Int16
	case int32:
		return tensor.Int32
	case int64:
		return tensor.Int64
	case uint8:
		return tensor.Uint8
	case uint16:
		return tensor.Uint16
	case uint32:
		return tensor.Uint32
	case uint64:
		return tensor.Uint64
	case float32:
		return tensor.FP32
	default:
		return tensor.FP64
	}
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
	size := t.DType.Size()
	if len(t.Data)%size != 0 {
		return nil, fmt.Errorf("tensor '%s' has %d bytes, expected a multiple of %d", t.Name, len(t.Data), size)
	}
	out := make([]T, len(t.Data)/size)
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
