package repository

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/tutti-server/tutti/core/tensor"
)

// goldenTensor is a tensor in JSON: nested or flat data, or raw bytes in base64.
type goldenTensor struct {
	Name      string          `json:"name"`
	Datatype  string          `json:"datatype"`
	Shape     []int64         `json:"shape"`
	Data      json.RawMessage `json:"data"`
	Raw       []byte          `json:"raw"`
	Tolerance *tolerance      `json:"tolerance"`
}

// encode returns the element type and the bytes.
func (g *goldenTensor) encode() (tensor.DType, []byte, error) {
	d, shape := tensor.ParseDType(g.Datatype), tensor.Of(g.Shape...)
	n := shape.Elements()
	switch {
	case d == tensor.Invalid:
		return d, nil, fmt.Errorf("has unknown datatype '%s'", g.Datatype)
	case n < 0 || n > maxWarmup:
		return d, nil, fmt.Errorf("has no usable shape %s", shape)
	}
	data := g.Raw
	if data == nil {
		leaves, err := flatten(g.Data)
		if err != nil {
			return d, nil, err
		}
		if int64(len(leaves)) != n {
			return d, nil, fmt.Errorf("has %d elements, expected %d for shape %s", len(leaves), n, shape)
		}
		for _, x := range leaves {
			if data, err = appendElement(data, d, x); err != nil {
				return d, nil, err
			}
		}
	}
	if d == tensor.Bytes {
		return d, data, tensor.CheckBytes(data, n)
	}
	if want := n * int64(d.Size()); int64(len(data)) != want {
		return d, nil, fmt.Errorf("has %d bytes, expected %d for shape %s", len(data), want, shape)
	}
	return d, data, nil
}

// tensor returns the tensor in memory of a.
func (g *goldenTensor) tensor(a tensor.Allocator) (tensor.Tensor, error) {
	d, data, err := g.encode()
	if err != nil {
		return tensor.Tensor{}, err
	}
	in := sampleInput{dtype: d, shape: tensor.Of(g.Shape...), data: data}
	return in.tensor(a)
}

// flatten returns the leaves of nested JSON arrays.
func flatten(data []byte) ([]any, error) {
	if len(data) == 0 {
		return nil, errors.New("has neither 'data' nor 'raw'")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var leaves []any
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return leaves, nil
		}
		if err != nil {
			return nil, err
		}
		switch x := tok.(type) {
		case json.Delim:
			if x == '{' || x == '}' {
				return nil, errors.New("has an object among its data")
			}
		default:
			leaves = append(leaves, x)
		}
	}
}

// appendElement appends a JSON value as an element of type d.
func appendElement(dst []byte, d tensor.DType, x any) ([]byte, error) {
	wrong := fmt.Errorf("has %v among its data, expected %s", x, d)
	switch x := x.(type) {
	case bool:
		if d != tensor.Bool {
			return nil, wrong
		}
		if x {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case string:
		if d == tensor.Bytes {
			return tensor.AppendBytes(dst, x), nil
		}
		v, err := strconv.ParseFloat(x, 64) // "NaN" and "Infinity", which are not JSON numbers
		if err != nil || d != tensor.FP32 && d != tensor.FP64 {
			return nil, wrong
		}
		return appendFloat(dst, d, v), nil
	case json.Number:
		return appendNumber(dst, d, x, wrong)
	}
	return nil, wrong
}

func appendNumber(dst []byte, d tensor.DType, x json.Number, wrong error) ([]byte, error) {
	bits := 8 * d.Size()
	switch d {
	case tensor.FP32, tensor.FP64:
		v, err := x.Float64()
		if err != nil {
			return nil, wrong
		}
		return appendFloat(dst, d, v), nil
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		v, err := strconv.ParseInt(x.String(), 10, bits)
		if err != nil {
			return nil, wrong
		}
		return append(dst, binary.LittleEndian.AppendUint64(nil, uint64(v))[:d.Size()]...), nil
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		v, err := strconv.ParseUint(x.String(), 10, bits)
		if err != nil {
			return nil, wrong
		}
		return append(dst, binary.LittleEndian.AppendUint64(nil, v)[:d.Size()]...), nil
	case tensor.FP16, tensor.BF16:
		return nil, fmt.Errorf("is %s, which is given as 'raw'", d)
	default:
		return nil, wrong
	}
}

func appendFloat(dst []byte, d tensor.DType, v float64) []byte {
	if d == tensor.FP32 {
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(v)))
	}
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}
