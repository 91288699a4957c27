package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
)

// parse converts an argument NAME=VALUE to a tensor of the model's declared type. For example: INPUT0=[1,2,3].
func (f *inputFiles) parse(arg string, md *infer.Metadata) (client.Tensor, error) {
	name, value, ok := strings.Cut(arg, "=")
	if !ok {
		return client.Tensor{}, usagef("--input is '%s', expected NAME=VALUE", arg)
	}
	in, err := inputOf(md, name)
	if err != nil {
		return client.Tensor{}, err
	}
	var t client.Tensor
	if file, ok := strings.CutPrefix(value, "@"); ok {
		t, err = f.fileInput(in, file)
	} else {
		t, err = parseValue(in, value)
	}
	if err != nil {
		err = fmt.Errorf("input '%s': %w", name, err)
	}
	return t, err
}

func parseValue(in infer.TensorMetadata, value string) (client.Tensor, error) {
	if d := tensor.ParseDType(in.Datatype); d == tensor.FP16 || d == tensor.BF16 {
		return client.Tensor{}, fmt.Errorf("values of %s have no text form, expected @FILE with their bytes", in.Datatype)
	}
	text := in.Datatype == tensor.Bytes.String()
	data := []byte(value)
	form, is := elementOf(in.Datatype)
	switch {
	case text && (!strings.HasPrefix(value, "[") || !json.Valid(data)):
		return client.Text(in.Name, shapeOf(in.Shape, nil, 1), value), nil
	case !strings.HasPrefix(value, "["):
		if data = []byte("[" + value + "]"); !json.Valid(data) {
			return client.Tensor{}, fmt.Errorf("'%s' is no value of %s, expected %s, a JSON array of such, or @FILE", value, in.Datatype, form)
		}
	}
	leaves, nested, err := flatten(data)
	if err != nil {
		return client.Tensor{}, err
	}
	for i, x := range leaves {
		if !is(x) {
			found, _ := json.Marshal(x) //nolint:errchkjson // it was decoded from JSON
			return client.Tensor{}, fmt.Errorf("element %d is %s, expected %s (%s)", i, found, form, in.Datatype)
		}
	}
	shape, err := fittingShape(in.Shape, nested, len(leaves))
	if err != nil {
		return client.Tensor{}, err
	}
	whole, err := json.Marshal(map[string]any{"name": in.Name, "datatype": in.Datatype, "shape": shape, "data": leaves})
	if err != nil {
		return client.Tensor{}, err
	}
	var t client.Tensor
	return t, json.Unmarshal(whole, &t)
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
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("the value is no JSON array: something follows its last ']'")
	}
	leaves = []any{}
	nested, err = appendLeaves(tree, 0, nil, &leaves)
	return leaves, nested, err
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

// elementOf returns the JSON form of an element of a data type, for errors, and a function that checks an element.
func elementOf(datatype string) (form string, is func(x any) bool) {
	d := tensor.ParseDType(datatype)
	bits := d.Size() * 8
	number := func(parse func(s string) error) func(x any) bool {
		return func(x any) bool {
			n, ok := x.(json.Number)
			return ok && parse(n.String()) == nil
		}
	}
	switch d {
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		form = fmt.Sprintf("a whole number from %d to %d", int64(-1)<<(bits-1), int64(1)<<(bits-1)-1)
		return form, number(func(s string) error { _, err := strconv.ParseInt(s, 10, bits); return err })
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		form = fmt.Sprintf("a whole number from 0 to %d", ^uint64(0)>>(64-bits))
		return form, number(func(s string) error { _, err := strconv.ParseUint(s, 10, bits); return err })
	case tensor.FP32, tensor.FP64:
		return "a number", number(func(s string) error { _, err := strconv.ParseFloat(s, bits); return err })
	case tensor.Bool:
		return "true or false", func(x any) bool { _, ok := x.(bool); return ok }
	case tensor.Bytes:
		return "a text in quotes", func(x any) bool { _, ok := x.(string); return ok }
	}
	return "nothing", func(any) bool { return false }
}

// fittingShape is shapeOf for a value that the user wrote. It refuses elements that the declared shape cannot have.
func fittingShape(declared, nested []int64, n int) ([]int64, error) {
	shape := shapeOf(declared, nested, n)
	if tensor.Of(shape...).Elements() == int64(n) && within(shape, declared) {
		return shape, nil
	}
	if len(nested) == len(declared) {
		return nil, fmt.Errorf("found an array of shape %v, expected %v", tensor.Of(nested...), tensor.Of(declared...))
	}
	known, multiple := int64(1), ""
	for _, d := range declared {
		if d < 0 {
			multiple = "a multiple of "
		} else {
			known *= d
		}
	}
	return nil, fmt.Errorf("found %d elements, expected %s%d for the shape %v", n, multiple, known, tensor.Of(declared...))
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
