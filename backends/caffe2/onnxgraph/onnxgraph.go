// Package onnxgraph writes ONNX models: one graph of nodes over named tensors. The numbers of the fields are those of onnx.proto.
package onnxgraph

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Versions of the written models. Opset 17 is the last whose reductions take their axes as attributes.
const (
	irVersion = 8
	opset     = 17
)

// Elem is a data type of ONNX, by its number in TensorProto.DataType.
type Elem int32

// The data types that models have.
const (
	Undefined Elem = 0
	Float     Elem = 1
	Uint8     Elem = 2
	Int8      Elem = 3
	Uint16    Elem = 4
	Int16     Elem = 5
	Int32     Elem = 6
	Int64     Elem = 7
	String    Elem = 8
	Bool      Elem = 9
	Float16   Elem = 10
	Double    Elem = 11
	Uint32    Elem = 12
	Uint64    Elem = 13
)

var elems = [...]struct {
	name string
	size int
}{
	{"undefined", 0},
	{"float", 4},
	{"uint8", 1},
	{"int8", 1},
	{"uint16", 2},
	{"int16", 2},
	{"int32", 4},
	{"int64", 8},
	{"string", 0},
	{"bool", 1},
	{"float16", 2},
	{"double", 8},
	{"uint32", 4},
	{"uint64", 8},
}

// String returns ONNX's name of the type, for example "float".
func (e Elem) String() string {
	if e < 0 || int(e) >= len(elems) {
		return "type " + strconv.Itoa(int(e))
	}
	return elems[e].name
}

// Size returns the bytes of an element, 0 for strings.
func (e Elem) Size() int {
	if e < 0 || int(e) >= len(elems) {
		return 0
	}
	return elems[e].size
}

// Attr is an attribute of a node.
type Attr struct{ data []byte }

// Attribute types of AttributeProto.
const (
	attrFloat, attrInt, attrString, attrInts = 1, 2, 3, 7
)

func newAttr(name string, kind uint64, value func(b []byte) []byte) Attr {
	b := value(appendString(nil, 1, name))
	return Attr{appendInt(b, 20, kind)}
}

// IntAttr returns an integer attribute.
func IntAttr(name string, v int64) Attr {
	return newAttr(name, attrInt, func(b []byte) []byte { return appendInt(b, 3, uint64(v)) }) //nolint:gosec // two's complement
}

// IntsAttr returns an attribute with a list of integers.
func IntsAttr(name string, list ...int64) Attr {
	return newAttr(name, attrInts, func(b []byte) []byte {
		for _, v := range list {
			b = appendInt(b, 8, uint64(v)) //nolint:gosec // two's complement
		}
		return b
	})
}

// FloatAttr returns an attribute with a float.
func FloatAttr(name string, v float32) Attr {
	return newAttr(name, attrFloat, func(b []byte) []byte {
		return protowire.AppendFixed32(protowire.AppendTag(b, 2, protowire.Fixed32Type), math.Float32bits(v))
	})
}

// StringAttr returns an attribute with a string.
func StringAttr(name, v string) Attr {
	return newAttr(name, attrString, func(b []byte) []byte { return appendString(b, 4, v) })
}

// Dim is a dimension of an input or output: a size, or a variable one with a name, which may be empty. Variable dimensions with the same
// name are equal.
type Dim struct {
	Size int64 // -1: variable
	Name string
}

// External is where the elements of an initializer are, in a file beside the model.
type External struct {
	File           string
	Offset, Length int64
}

// Builder collects the parts of a graph. The zero value is an empty graph. Names must be unique, and nodes in an order in which each
// reads what came before; the runtime checks that.
type Builder struct{ graph []byte }

// Node appends a node of an operator of ONNX. The name is for errors of the runtime. An empty input is absent.
func (g *Builder) Node(kind, name string, in, out []string, attrs ...Attr) {
	var b []byte
	for _, tensor := range in {
		b = appendString(b, 1, tensor)
	}
	for _, tensor := range out {
		b = appendString(b, 2, tensor)
	}
	b = appendString(b, 3, name)
	b = appendString(b, 4, kind)
	for _, a := range attrs {
		b = appendBytes(b, 5, a.data)
	}
	g.graph = appendBytes(g.graph, 1, b)
}

// Initializer appends a constant with its elements in little endian. Strings are not supported.
func (g *Builder) Initializer(name string, e Elem, dims []int64, raw []byte) {
	g.graph = appendBytes(g.graph, 5, appendBytes(header(name, e, dims), 9, raw))
}

// External appends a constant whose elements are in another file.
func (g *Builder) External(name string, e Elem, dims []int64, x External) {
	b := header(name, e, dims)
	for _, pair := range [][2]string{
		{"location", x.File}, {"offset", strconv.FormatInt(x.Offset, 10)}, {"length", strconv.FormatInt(x.Length, 10)},
	} {
		b = appendBytes(b, 13, appendString(appendString(nil, 1, pair[0]), 2, pair[1]))
	}
	g.graph = appendBytes(g.graph, 5, appendInt(b, 14, 1))
}

// header begins a TensorProto.
func header(name string, e Elem, dims []int64) []byte {
	var b []byte
	for _, d := range dims {
		b = appendInt(b, 1, uint64(d)) //nolint:gosec // not negative
	}
	return appendString(appendInt(b, 2, uint64(e)), 8, name) //nolint:gosec // a small number
}

// Input declares an input of the graph.
func (g *Builder) Input(name string, e Elem, dims []Dim) {
	g.graph = appendBytes(g.graph, 11, valueInfo(name, e, dims))
}

// Output declares an output of the graph. The runtime derives its type when e is Undefined, and its shape when dims is nil.
func (g *Builder) Output(name string, e Elem, dims []Dim) {
	g.graph = appendBytes(g.graph, 12, valueInfo(name, e, dims))
}

func valueInfo(name string, e Elem, dims []Dim) []byte {
	b := appendString(nil, 1, name)
	if e == Undefined {
		return b
	}
	tensor := appendInt(nil, 1, uint64(e)) //nolint:gosec // a small number
	if dims != nil {
		var shape []byte
		for _, d := range dims {
			var dim []byte
			switch {
			case d.Size >= 0:
				dim = appendInt(nil, 1, uint64(d.Size))
			case d.Name != "":
				dim = appendString(nil, 2, d.Name)
			}
			shape = appendBytes(shape, 1, dim)
		}
		tensor = appendBytes(tensor, 2, shape)
	}
	return appendBytes(b, 2, appendBytes(nil, 1, tensor))
}

// Model returns the serialized ModelProto.
func (g *Builder) Model(name string) []byte {
	b := appendInt(nil, 1, irVersion)
	b = appendString(b, 2, "tutti")
	b = appendBytes(b, 8, appendInt(nil, 2, opset))
	// The graph's own name is the last of its fields: their order is free.
	return appendBytes(b, 7, appendString(g.graph, 2, name))
}

func appendInt(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func appendString(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}
