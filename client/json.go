package client

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/tensor"
)

// wire is the JSON form of a tensor.
type wire struct {
	Name       string          `json:"name"`
	Datatype   string          `json:"datatype"`
	Shape      []int64         `json:"shape"`
	Parameters *wireParams     `json:"parameters,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

type wireParams struct {
	BinarySize *int `json:"binary_data_size,omitempty"`
}

// MarshalJSON encodes the tensor with its elements in a flat list.
func (t *Tensor) MarshalJSON() ([]byte, error) {
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
	switch t.DType {
	case tensor.Bytes:
		return t.texts()
	case tensor.Bool:
		return Values[bool](t)
	case tensor.Int8:
		return Values[int8](t)
	case tensor.Int16:
		return Values[int16](t)
	case tensor.Int32:
		return Values[int32](t)
	case tensor.Int64:
		return Values[int64](t)
	case tensor.Uint8:
		v, err := Values[uint8](t)
		return wide(v), err
	case tensor.Uint16:
		return Values[uint16](t)
	case tensor.Uint32:
		return Values[uint32](t)
	case tensor.Uint64:
		return Values[uint64](t)
	case tensor.FP32:
		return Values[float32](t)
	case tensor.FP64:
		return Values[float64](t)
	default:
		return nil, fmt.Errorf("tensor '%s' of %s cannot be written as JSON", t.Name, t.DType)
	}
}

// texts returns the elements. It fails if one is no valid UTF-8, which JSON cannot hold.
func (t *Tensor) texts() ([]string, error) {
	list, err := t.Strings()
	for _, s := range list {
		if !utf8.ValidString(s) {
			return nil, fmt.Errorf("tensor '%s' has an element that is not UTF-8 and cannot be written as JSON", t.Name)
		}
	}
	return list, err
}

// wide converts bytes to numbers of 16 bits: encoding/json would write bytes as base64.
func wide(bytes []uint8) []uint16 {
	out := make([]uint16, len(bytes))
	for i, b := range bytes {
		out[i] = uint16(b)
	}
	return out
}

// parse sets Data from elements in JSON.
func (t *Tensor) parse(data []byte) error {
	switch t.DType {
	case tensor.Bytes:
		return t.parseTexts(data)
	case tensor.Bool:
		return parseAs[bool](t, data)
	case tensor.Int8:
		return parseAs[int8](t, data)
	case tensor.Int16:
		return parseAs[int16](t, data)
	case tensor.Int32:
		return parseAs[int32](t, data)
	case tensor.Int64:
		return parseAs[int64](t, data)
	case tensor.Uint8:
		return t.parseNarrow(data)
	case tensor.Uint16:
		return parseAs[uint16](t, data)
	case tensor.Uint32:
		return parseAs[uint32](t, data)
	case tensor.Uint64:
		return parseAs[uint64](t, data)
	case tensor.FP32:
		return parseAs[float32](t, data)
	case tensor.FP64:
		return parseAs[float64](t, data)
	default:
		return fmt.Errorf("tensor '%s' of %s cannot be read from JSON", t.Name, t.DType)
	}
}

func parseAs[T Number](t *Tensor, data []byte) error {
	var list []T
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("tensor '%s': %w", t.Name, err)
	}
	t.Data = Of("", nil, list...).Data
	return nil
}

func (t *Tensor) parseTexts(data []byte) error {
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("tensor '%s': %w", t.Name, err)
	}
	t.Data = Text("", nil, list...).Data
	return nil
}

func (t *Tensor) parseNarrow(data []byte) error {
	var list []uint16
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("tensor '%s': %w", t.Name, err)
	}
	for _, v := range list {
		if v > 0xff {
			return fmt.Errorf("tensor '%s' of %s has element %d", t.Name, t.DType, v)
		}
		t.Data = append(t.Data, uint8(v))
	}
	return nil
}
