package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/client"
	coreinfer "github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
)

// parseInput converts an argument NAME=VALUE to a tensor of the model's declared type. For example: INPUT0=[1,2,3].
func parseInput(arg string, md *coreinfer.Metadata) (client.Tensor, error) {
	name, value, ok := strings.Cut(arg, "=")
	if !ok {
		return client.Tensor{}, usagef("--input is '%s', expected NAME=VALUE", arg)
	}
	var names []string
	for _, in := range md.Inputs {
		if in.Name == name {
			t, err := parseValue(in, value)
			if err != nil {
				err = fmt.Errorf("input '%s': %w", name, err)
			}
			return t, err
		}
		names = append(names, in.Name)
	}
	return client.Tensor{}, fmt.Errorf("model '%s' has no input '%s', expected one of: %s", md.Name, name, strings.Join(names, ", "))
}

func parseValue(in coreinfer.TensorMetadata, value string) (client.Tensor, error) {
	if file, ok := strings.CutPrefix(value, "@"); ok {
		return fileInput(in, file)
	}
	if d := tensor.ParseDType(in.Datatype); d == tensor.FP16 || d == tensor.BF16 {
		return client.Tensor{}, fmt.Errorf("values of %s have no text form, expected @FILE with their bytes", in.Datatype)
	}
	text := in.Datatype == tensor.Bytes.String()
	data := []byte(value)
	switch {
	case text && (!strings.HasPrefix(value, "[") || !json.Valid(data)):
		return client.Text(in.Name, shapeOf(in.Shape, nil, 1), value), nil
	case !strings.HasPrefix(value, "["):
		if data = []byte("[" + value + "]"); !json.Valid(data) {
			return client.Tensor{}, fmt.Errorf("'%s' is no value of %s, expected %s, a JSON array of such, or @FILE", value, in.Datatype, elementOf(in.Datatype))
		}
	}
	leaves, nested, err := flatten(data)
	if err != nil {
		return client.Tensor{}, err
	}
	for i, x := range leaves {
		if !isElement(in.Datatype, x) {
			found, _ := json.Marshal(x) //nolint:errchkjson // it was decoded from JSON
			return client.Tensor{}, fmt.Errorf("element %d is %s, expected %s (%s)", i, found, elementOf(in.Datatype), in.Datatype)
		}
	}
	whole, err := json.Marshal(map[string]any{
		"name": in.Name, "datatype": in.Datatype, "shape": shapeOf(in.Shape, nested, len(leaves)), "data": leaves,
	})
	if err != nil {
		return client.Tensor{}, err
	}
	var t client.Tensor
	return t, json.Unmarshal(whole, &t)
}

// fileInput reads a file as one element of BYTES, or as the elements of another type.
func fileInput(in coreinfer.TensorMetadata, file string) (client.Tensor, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return client.Tensor{}, err
	}
	if in.Datatype == tensor.Bytes.String() {
		return client.Text(in.Name, shapeOf(in.Shape, nil, 1), data), nil
	}
	d := tensor.ParseDType(in.Datatype)
	if d.Size() == 0 {
		return client.Tensor{}, fmt.Errorf("unknown type %s", in.Datatype)
	}
	return client.Tensor{Name: in.Name, DType: d, Shape: shapeOf(in.Shape, nil, len(data)/d.Size()), Data: data}, nil
}

// flatten returns the elements of a nested JSON array. nested has the extent of each level; all arrays of a level
// must have the same.
func flatten(data []byte) (leaves []any, nested []int64, err error) {
	var tree []any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	switch err := d.Decode(&tree); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, nil, errors.New("the value is no JSON array: it ends before its last ']'")
	case err != nil:
		return nil, nil, fmt.Errorf("the value is no JSON array: %w", err)
	case !atEnd(d):
		return nil, nil, errors.New("the value is no JSON array: something follows its last ']'")
	}
	leaves = []any{}
	nested, err = appendLeaves(tree, 0, nil, &leaves)
	return leaves, nested, err
}

// atEnd reports whether the input has ended.
func atEnd(d *json.Decoder) bool {
	_, err := d.Token()
	return errors.Is(err, io.EOF)
}

// appendLeaves appends the elements below level, and to nested the extents of levels that are new.
func appendLeaves(level []any, depth int, nested []int64, leaves *[]any) ([]int64, error) {
	if depth == len(nested) {
		nested = append(nested, int64(len(level)))
	}
	if int64(len(level)) != nested[depth] {
		return nil, fmt.Errorf("arrays beside each other have %d and %d elements, expected as many in each", nested[depth], len(level))
	}
	for _, x := range level {
		inner, ok := x.([]any)
		switch {
		case !ok && depth+1 < len(nested):
			return nil, errors.New("an element stands beside an array, expected only arrays there")
		case !ok:
			*leaves = append(*leaves, x)
			continue
		case depth+1 == len(nested) && len(*leaves) > 0:
			return nil, errors.New("an array stands beside an element, expected only elements there")
		}
		var err error
		if nested, err = appendLeaves(inner, depth+1, nested, leaves); err != nil {
			return nil, err
		}
	}
	return nested, nil
}

// isElement reports whether a JSON value is an element of a data type.
func isElement(datatype string, x any) bool {
	d := tensor.ParseDType(datatype)
	switch x := x.(type) {
	case string:
		return d == tensor.Bytes
	case bool:
		return d == tensor.Bool
	case json.Number:
		var err error
		switch bits := d.Size() * 8; d {
		case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
			_, err = strconv.ParseInt(x.String(), 10, bits)
		case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
			_, err = strconv.ParseUint(x.String(), 10, bits)
		case tensor.FP32, tensor.FP64:
			_, err = strconv.ParseFloat(x.String(), bits)
		default:
			return false
		}
		return err == nil
	}
	return false
}

// elementOf returns the JSON form of an element of a data type, for errors.
func elementOf(datatype string) string {
	d := tensor.ParseDType(datatype)
	switch bits := d.Size() * 8; d {
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		return fmt.Sprintf("a whole number from %d to %d", int64(-1)<<(bits-1), int64(1)<<(bits-1)-1)
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", ^uint64(0)>>(64-bits))
	case tensor.FP32, tensor.FP64:
		return "a number"
	case tensor.Bool:
		return "true or false"
	case tensor.Bytes:
		return "a text in quotes"
	}
	return "nothing"
}

// shapeOf returns the shape of n elements: nested if it has as many dimensions as the input, otherwise the declared
// shape, in which the last variable dimension has the remaining extent and other variable dimensions are 1.
func shapeOf(declared, nested []int64, n int) []int64 {
	if len(nested) == len(declared) {
		return nested
	}
	shape := append([]int64{}, declared...)
	last, known := -1, int64(1)
	for i, d := range shape {
		if d >= 0 {
			known *= d
			continue
		}
		shape[i], last = 1, i
	}
	if last >= 0 && known > 0 {
		shape[last] = int64(n) / known
	}
	return shape
}
