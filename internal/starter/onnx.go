package starter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/onnxfile"
)

// The numbers of the fields of onnx.proto that are read here.
const (
	modelIR, modelGraph, modelOpsets, modelMeta = 1, 7, 8, 14
	graphNode, graphInitializer, graphSparse    = 1, 5, 15
	graphInput, graphOutput, graphValue         = 11, 12, 13
	nodeInput, nodeOutput, nodeType, nodeAttr   = 1, 2, 4, 5
	attrTensor, attrGraph, attrTensors, attrG   = 5, 6, 10, 11
	tensorName, tensorExternal                  = 8, 13
	valueName, valueType                        = 1, 2
	typeTensor, typeSequence, typeMap           = 1, 4, 5
	typeSparse, typeOptional                    = 8, 9
	tensorElem, tensorShape                     = 1, 2
	shapeDim, dimValue, dimParam                = 1, 1, 2
	pairKey, pairValue                          = 1, 2
)

// maxDepth bounds the nesting of graphs: of the branches of If, and the bodies of Loop.
const maxDepth = 64

// element has the data types of ONNX by number: TensorProto.DataType.
var element = map[uint64]tensor.DType{
	1: tensor.FP32, 2: tensor.Uint8, 3: tensor.Int8, 4: tensor.Uint16, 5: tensor.Int16, 6: tensor.Int32, 7: tensor.Int64, 8: tensor.Bytes,
	9: tensor.Bool, 10: tensor.FP16, 11: tensor.FP64, 12: tensor.Uint32, 13: tensor.Uint64, 16: tensor.BF16,
}

// onnxFile is what is read of an ONNX file.
type onnxFile struct {
	m            *Model
	graph        bool
	initializers map[string]bool
	inputs       []Port
	producer     map[string]onnxNode // of each tensor of the main graph
}

// onnxNode is a node of the main graph.
type onnxNode struct{ op, input string }

// readONNX reads the inputs, outputs and names of external files of an ONNX file. The file is mapped: weights are not read.
func readONNX(m *Model) error {
	return onnxfile.Map(m.Path, func(data []byte) error {
		if strings.HasPrefix(string(data[:min(len(data), len(lfsMark))]), lfsMark) {
			return fmt.Errorf("'%s' is the pointer of a file that Git LFS stores, expected the model itself: run git lfs pull", m.Path)
		}
		if err := (&onnxFile{m: m}).read(data); err != nil {
			return fmt.Errorf("'%s' cannot be read as an ONNX model: %w", m.Path, err)
		}
		return nil
	})
}

// lfsMark begins a file that stands for one of Git LFS.
const lfsMark = "version https://git-lfs"

func (x *onnxFile) read(data []byte) error {
	x.initializers, x.producer = map[string]bool{}, map[string]onnxNode{}
	x.m.Meta, x.m.Last = map[string]string{}, map[string]string{}
	known := false
	err := onnxfile.Fields(data, func(n protowire.Number, v uint64, b []byte) error {
		switch n {
		case modelIR:
			known = v > 0
		case modelGraph:
			x.graph = true
			return x.readGraph(b, 0)
		case modelMeta:
			key, value, err := pair(b)
			x.m.Meta[key] = value
			return err
		case modelOpsets:
			known = true
		}
		return nil
	})
	switch {
	case !known && !x.graph:
		return onnxfile.ErrNotONNX
	case err != nil:
		return err
	case !x.graph:
		return errors.New("it has no graph: the file is truncated, or it is no ONNX model")
	}
	for _, p := range x.inputs {
		if !x.initializers[p.Name] { // files of IR 3 list weights as inputs too
			x.m.Inputs = append(x.m.Inputs, p)
		}
	}
	for _, p := range x.m.Outputs {
		x.m.Last[p.Name] = x.last(p.Name)
	}
	slices.Sort(x.m.External)
	x.m.External = slices.Compact(x.m.External)
	return x.checkExternal()
}

// checkExternal checks that the files with weights are beside the model.
func (x *onnxFile) checkExternal() error {
	for _, name := range x.m.External {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("its weights are in '%s', expected a file below the folder of the model", name)
		}
		path := filepath.Join(filepath.Dir(x.m.Path), name)
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("its weights are in a file of their own, which must be beside it: %w", err)
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("its weights are in '%s', which is no file", path)
		}
	}
	return nil
}

// last returns the type of the operator that computes a tensor of the main graph, behind copies and changes of shape.
func (x *onnxFile) last(name string) string {
	for range maxDepth {
		n, ok := x.producer[name]
		if !ok {
			return ""
		}
		switch n.op {
		case "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Cast", "Dropout":
			name = n.input
		default:
			return n.op
		}
	}
	return ""
}

func (x *onnxFile) readGraph(data []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("its graphs are nested more than %d deep", maxDepth)
	}
	return onnxfile.Fields(data, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case graphNode:
			return x.readNode(b, depth)
		case graphInitializer:
			return x.readTensor(b, depth)
		case graphSparse:
			return onnxfile.Fields(b, func(n protowire.Number, _ uint64, b []byte) error {
				if n == 1 { // the values
					return x.readTensor(b, depth)
				}
				return nil
			})
		case graphInput, graphOutput:
			if depth > 0 {
				return nil
			}
			side := "input"
			if n == graphOutput {
				side = "output"
			}
			p, err := readValue(b, side)
			if err != nil {
				return err
			}
			if n == graphInput {
				x.inputs = append(x.inputs, p)
			} else {
				x.m.Outputs = append(x.m.Outputs, p)
			}
		}
		return nil
	})
}

func (x *onnxFile) readNode(data []byte, depth int) error {
	var node onnxNode
	var outputs []string
	err := onnxfile.Fields(data, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case nodeInput:
			if node.input == "" {
				node.input = string(b)
			}
		case nodeOutput:
			outputs = append(outputs, string(b))
		case nodeType:
			node.op = string(b)
		case nodeAttr:
			return x.readAttribute(b, depth)
		}
		return nil
	})
	if depth == 0 {
		for _, name := range outputs {
			x.producer[name] = node
		}
	}
	return err
}

func (x *onnxFile) readAttribute(data []byte, depth int) error {
	return onnxfile.Fields(data, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case attrTensor, attrTensors:
			return x.readTensor(b, depth+1) // a constant's name is no initializer's
		case attrGraph, attrG:
			return x.readGraph(b, depth+1)
		}
		return nil
	})
}

// readTensor reads the name of a tensor of weights, and the file that has its elements if it is another one.
func (x *onnxFile) readTensor(data []byte, depth int) error {
	return onnxfile.Fields(data, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case tensorName:
			if depth == 0 {
				x.initializers[string(b)] = true
			}
		case tensorExternal:
			key, value, err := pair(b)
			if key == "location" && err == nil {
				x.m.External = append(x.m.External, filepath.Clean(value))
			}
			return err
		}
		return nil
	})
}

// readValue reads an input or output: side says which.
func readValue(data []byte, side string) (p Port, err error) {
	kind := protowire.Number(0)
	var body []byte
	err = onnxfile.Fields(data, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case valueName:
			p.Name = string(b)
		case valueType:
			return onnxfile.Fields(b, func(n protowire.Number, _ uint64, b []byte) error {
				if n <= typeOptional && n != 6 { // 6 is a denotation
					kind, body = n, b
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return p, err
	}
	what := map[protowire.Number]string{
		typeSequence: "a sequence", typeMap: "a map", typeSparse: "a sparse tensor", typeOptional: "an optional value", 0: "of no type", 7: "an opaque value",
	}
	if kind != typeTensor {
		advice := "export it with tensors only"
		if kind == typeSequence || kind == typeMap {
			advice += " (skl2onnx: options={'zipmap': False})"
		}
		return p, fmt.Errorf("its %s '%s' is %s, expected a tensor: %s", side, p.Name, what[kind], advice)
	}
	return p, p.readTensorType(body, side)
}

func (p *Port) readTensorType(data []byte, side string) error {
	elem := uint64(0)
	err := onnxfile.Fields(data, func(n protowire.Number, v uint64, b []byte) error {
		switch n {
		case tensorElem:
			elem = v
		case tensorShape:
			p.Shape = []int64{}
			return onnxfile.Fields(b, func(n protowire.Number, _ uint64, b []byte) error {
				if n == shapeDim {
					return p.readDim(b)
				}
				return nil
			})
		}
		return nil
	})
	if p.DType = element[elem]; p.DType == tensor.Invalid && err == nil {
		return fmt.Errorf("its %s '%s' has elements of type %d of ONNX, which requests cannot have: expected numbers, booleans or strings", side, p.Name, elem)
	}
	return err
}

func (p *Port) readDim(data []byte) error {
	size, symbol := int64(-1), ""
	err := onnxfile.Fields(data, func(n protowire.Number, v uint64, b []byte) error {
		switch n {
		case dimValue:
			size = int64(v) //nolint:gosec // two's complement on the wire
		case dimParam:
			symbol = string(b)
		}
		return nil
	})
	if size <= 0 { // older exporters write 0 or -1 for a variable dimension
		size = -1
	}
	p.Shape, p.Symbols = append(p.Shape, size), append(p.Symbols, symbol)
	return err
}

// pair reads a StringStringEntryProto.
func pair(data []byte) (key, value string, err error) {
	err = onnxfile.Fields(data, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case pairKey:
			key = string(b)
		case pairValue:
			value = string(b)
		}
		return nil
	})
	return key, value, err
}
