// Package netdef reads the files of Caffe2: serialized NetDef messages, which list operators with their arguments. The numbers of the
// fields are those of caffe2.proto in PyTorch.
//
//	netdef.go   the messages
//	numbers.go  repeated numbers, which stay encoded: the weights of a net
//
// Nothing of a net is interpreted here: see package convert.
package netdef

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Limits of a net. They bound the memory for a hostile file: every operator, argument and name takes more memory than it has bytes.
const (
	maxOperators = 100_000
	maxNames     = 2_000_000 // of blobs, and fields of arguments, in all operators together
)

// Net is a NetDef: operators that are executed in order.
type Net struct {
	Name      string
	Operators []Operator
	// Inputs and Outputs are external_input and external_output: blobs that others fill and read. Exporters may leave them out.
	Inputs, Outputs []string
}

// Operator is an OperatorDef.
type Operator struct {
	Name, Type      string
	Inputs, Outputs []string // names of blobs
	Args            []Argument
}

// Argument is a named argument of an operator. A field that the file does not have is zero.
type Argument struct {
	Name string
	// HasF, HasI and HasS are set when the file has the field.
	HasF, HasI, HasS bool
	F                float32
	I                int64
	S                []byte // borrowed from the data of Parse
	Floats           Floats
	Ints             Ints
	Strings          [][]byte // borrowed from the data of Parse
	// Nested names a field whose value is a net or a tensor; "" for none. Such values are not read.
	Nested string
}

// ErrTruncated is the error for a file that ends within a field.
var ErrTruncated = errors.New("it ends in the middle of a field: the file is truncated")

// ErrFormat is the error for bytes that are no NetDef.
var ErrFormat = errors.New("it is no serialized NetDef of Caffe2")

// Parse reads a NetDef. The result borrows the numbers and strings of arguments from data, which must not change while it is used.
func Parse(data []byte) (*Net, error) {
	p := &parser{names: maxNames}
	n := &Net{}
	err := fields(data, func(num protowire.Number, f field) (err error) {
		switch {
		case f.kind != protowire.BytesType:
			return wrongKind(num, f, netNumbers, "NetDef")
		case num == 1:
			n.Name, err = p.text(f.b)
		case num == 2:
			if len(n.Operators) == maxOperators {
				return fmt.Errorf("it has more than %d operators", maxOperators)
			}
			n.Operators = append(n.Operators, Operator{})
			err = p.operator(&n.Operators[len(n.Operators)-1], f.b)
			if err != nil {
				err = fmt.Errorf("operator %d: %w", len(n.Operators)-1, err)
			}
		case num == 7:
			err = p.name(&n.Inputs, f.b)
		case num == 8:
			err = p.name(&n.Outputs, f.b)
		}
		return err
	})
	return n, err
}

// netNumbers and opNumbers are the fields with numbers, which are not read: num_workers, is_gradient_op and op_version.
var (
	netNumbers = []protowire.Number{4}
	opNumbers  = []protowire.Number{9, 12}
)

// wrongKind refuses a field whose encoding is not that of the message. Unknown fields are skipped, as protobuf does.
func wrongKind(num protowire.Number, f field, numbers []protowire.Number, message string) error {
	if num > 12 || slices.Contains(numbers, num) {
		return nil
	}
	return fmt.Errorf("%w: field %d of a %s has wire type %d", ErrFormat, num, message, f.kind)
}

// parser counts what a net may have.
type parser struct{ names int }

// text returns a string of the file.
func (p *parser) text(b []byte) (string, error) {
	if p.names--; p.names < 0 {
		return "", fmt.Errorf("it has more than %d names", maxNames)
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("%w: a name is not UTF-8: %.20q", ErrFormat, b)
	}
	return string(b), nil
}

func (p *parser) name(list *[]string, b []byte) error {
	s, err := p.text(b)
	*list = append(*list, s)
	return err
}

func (p *parser) operator(o *Operator, data []byte) error {
	return fields(data, func(num protowire.Number, f field) (err error) {
		switch {
		case f.kind != protowire.BytesType:
			return wrongKind(num, f, opNumbers, "OperatorDef")
		case num == 1:
			err = p.name(&o.Inputs, f.b)
		case num == 2:
			err = p.name(&o.Outputs, f.b)
		case num == 3:
			o.Name, err = p.text(f.b)
		case num == 4:
			o.Type, err = p.text(f.b)
		case num == 5:
			o.Args = append(o.Args, Argument{})
			err = p.argument(&o.Args[len(o.Args)-1], f.b)
		}
		return err
	})
}

// nested names the fields of an argument with messages.
var nested = map[protowire.Number]string{8: "a net", 9: "nets", 10: "a tensor", 11: "tensors", 12: "quantized tensors"}

func (p *parser) argument(a *Argument, data []byte) error {
	for rest := data; len(rest) > 0; {
		// Weights are runs of numbers, each with its tag.
		if n := a.Floats.run(rest); n > 0 {
			rest = rest[n:]
			continue
		}
		n, err := a.Ints.run(rest)
		if err != nil {
			return err
		}
		if n > 0 {
			rest = rest[n:]
			continue
		}
		num, f, n, err := next(rest)
		if err == nil {
			rest = rest[n:]
			err = p.argumentField(a, num, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) argumentField(a *Argument, num protowire.Number, f field) (err error) {
	if p.names--; p.names < 0 {
		return fmt.Errorf("it has more than %d names", maxNames)
	}
	switch {
	case num == 1 && f.kind == protowire.BytesType:
		a.Name, err = p.text(f.b)
	case num == 2 && f.kind == protowire.Fixed32Type:
		a.F, a.HasF = math.Float32frombits(uint32(f.v)), true //nolint:gosec // 32 bits
	case num == 3 && f.kind == protowire.VarintType:
		a.I, a.HasI = int64(f.v), true //nolint:gosec // two's complement
	case num == 4 && f.kind == protowire.BytesType:
		a.S, a.HasS = f.b, true
	case num == 5 && f.kind == protowire.BytesType:
		err = a.Floats.packed(f.b)
	case num == 6 && f.kind == protowire.BytesType:
		err = a.Ints.packed(f.b)
	case num == 7 && f.kind == protowire.BytesType:
		a.Strings = append(a.Strings, f.b)
	case nested[num] != "" && f.kind == protowire.BytesType:
		a.Nested = nested[num]
	default:
		err = wrongKind(num, f, nil, "Argument")
	}
	return err
}

// field is the value of a field: v of a number, b of a string, of bytes or of a message.
type field struct {
	kind protowire.Type
	v    uint64
	b    []byte
}

// fields calls each with every field of a message, until it returns an error.
func fields(data []byte, each func(num protowire.Number, f field) error) error {
	for len(data) > 0 {
		num, f, n, err := next(data)
		if err != nil {
			return err
		}
		data = data[n:]
		if err := each(num, f); err != nil {
			return err
		}
	}
	return nil
}

// next returns the first field of data and its size in bytes.
func next(data []byte) (num protowire.Number, f field, size int, err error) {
	num, kind, tag := protowire.ConsumeTag(data)
	if tag < 0 {
		return 0, field{}, 0, broken(tag)
	}
	f.kind = kind
	var n int
	switch rest := data[tag:]; kind {
	case protowire.VarintType:
		f.v, n = protowire.ConsumeVarint(rest)
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(rest)
		f.v = uint64(v)
	case protowire.Fixed64Type:
		f.v, n = protowire.ConsumeFixed64(rest)
	case protowire.BytesType:
		f.b, n = protowire.ConsumeBytes(rest)
	default:
		return 0, field{}, 0, ErrFormat // Caffe2 has no groups
	}
	if n < 0 {
		return 0, field{}, 0, broken(n)
	}
	return num, f, tag + n, nil
}

// broken returns the error for a code of protowire.
func broken(code int) error {
	if errors.Is(protowire.ParseError(code), io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return ErrFormat
}
