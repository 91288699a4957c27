package onnxfile

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of the fields that Summarise reads.
const (
	modelIR, modelGraph                            = 1, 7
	graphNode, graphInitializer                    = 1, 5
	nodeType, nodeAttr, nodeDomain                 = 4, 5, 7
	attrTensor, attrGraph, attrTensors, attrGraphs = 5, 6, 10, 11
	tensorDims, tensorType                         = 1, 2
)

// maxDepth bounds the nesting of graphs: of the branches of If, and the bodies of Loop.
const maxDepth = 64

// The element types of weights that a Summary is read for, by number: TensorProto.DataType.
const (
	Float    = 1
	Uint8    = 2
	Int8     = 3
	Float16  = 10
	BFloat16 = 16
)

// Op is the type of an operator. For example, {"com.microsoft", "MatMulNBits"}; the domain of ONNX's own operators is empty.
type Op struct{ Domain, Type string }

// Summary counts what a model consists of, in all its graphs.
type Summary struct {
	// Ops is how often each operator occurs.
	Ops map[Op]int
	// Weights is the number of elements of initialisers and constants by element type.
	Weights map[uint64]int64
}

// Summarise reads the summary of the ONNX file at path. Weights in files of their own count by their declared shapes.
func Summarise(path string) (*Summary, error) {
	s := &Summary{Ops: map[Op]int{}, Weights: map[uint64]int64{}}
	err := Map(path, s.read)
	if err != nil {
		return nil, fmt.Errorf("'%s' cannot be read as an ONNX model: %w", path, err)
	}
	return s, nil
}

// read reads a ModelProto.
func (s *Summary) read(data []byte) error {
	known, graph := false, false
	err := Fields(data, func(n protowire.Number, v uint64, b []byte) error {
		switch n {
		case modelIR:
			known = v > 0
		case modelGraph:
			graph = true
			return s.graph(b, 0)
		}
		return nil
	})
	if !known && !graph || err == nil && !graph {
		return ErrNotONNX
	}
	return err
}

// graph reads a GraphProto.
func (s *Summary) graph(data []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("its graphs are nested more than %d deep", maxDepth)
	}
	return Fields(data, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case graphNode:
			return s.node(b, depth)
		case graphInitializer:
			return s.tensor(b)
		}
		return nil
	})
}

// node reads a NodeProto.
func (s *Summary) node(data []byte, depth int) error {
	var op Op
	err := Fields(data, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case nodeType:
			op.Type = string(b)
		case nodeDomain:
			op.Domain = string(b)
		case nodeAttr:
			return s.attribute(b, depth)
		}
		return nil
	})
	if op.Domain == "ai.onnx" { // another name of the default domain
		op.Domain = ""
	}
	s.Ops[op]++
	return err
}

// attribute reads an AttributeProto.
func (s *Summary) attribute(data []byte, depth int) error {
	return Fields(data, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case attrTensor, attrTensors:
			return s.tensor(b)
		case attrGraph, attrGraphs:
			return s.graph(b, depth+1)
		}
		return nil
	})
}

// maxElements bounds the elements of a tensor that a file may declare.
const maxElements = 1 << 48

// tensor reads a TensorProto.
func (s *Summary) tensor(data []byte) error {
	kind, elements := uint64(0), int64(1)
	dim := func(d uint64) {
		if d > maxElements || elements > maxElements/max(1, int64(d)) { //nolint:gosec // it was compared first
			d = 0
		}
		elements *= int64(d) //nolint:gosec // at most maxElements
	}
	err := Fields(data, func(n protowire.Number, v uint64, b []byte) error {
		switch n {
		case tensorDims:
			if b == nil {
				dim(v)
				return nil
			}
			for len(b) > 0 { // packed
				d, used := protowire.ConsumeVarint(b)
				if used < 0 {
					return broken(used)
				}
				dim(d)
				b = b[used:]
			}
		case tensorType:
			kind = v
		}
		return nil
	})
	s.Weights[kind] += elements
	return err
}
