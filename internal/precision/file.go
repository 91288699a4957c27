package precision

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/internal/onnxfile"
)

// quantised are the operators that compute with 8 bit integers, or mark where a runtime may. QuantizeLinear and DequantizeLinear are
// those of the QDQ format. Those of com.microsoft are ONNX Runtime's.
var quantised = map[onnxfile.Op]bool{
	{Type: "QuantizeLinear"}: true, {Type: "DequantizeLinear"}: true, {Type: "DynamicQuantizeLinear"}: true,
	{Type: "MatMulInteger"}: true, {Type: "ConvInteger"}: true, {Type: "QLinearMatMul"}: true, {Type: "QLinearConv"}: true,
}

// microsoft is the domain of ONNX Runtime's own operators.
const microsoft = "com.microsoft"

// isQuantised reports whether an operator of an ONNX file is one of 8 bit integers.
func isQuantised(op onnxfile.Op) bool {
	if quantised[op] {
		return true
	}
	if op.Domain != microsoft {
		return false
	}
	switch op.Type {
	case "QuantizeLinear", "DequantizeLinear", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM",
		"QGemm", "QAttention", "QEmbedLayerNormalization", "QOrderedMatMul", "QMoE":
		return true
	}
	return strings.HasPrefix(op.Type, "QLinear")
}

// Blocks is the precision of a file whose weights are stored in blocks of few bits. It cannot be declared.
const Blocks Precision = "blockwise"

// OfONNX returns the precision of an ONNX file: int8 if it has operators of 8 bit integers, Blocks for weights in blocks, otherwise the
// type of most of its floating-point weights. A file without such weights is fp32.
func OfONNX(path string) (Precision, error) {
	s, err := onnxfile.Summarise(path)
	if err != nil {
		return None, err
	}
	blocks := false
	for op := range s.Ops {
		if isQuantised(op) {
			return INT8, nil
		}
		blocks = blocks || op.Domain == microsoft && (op.Type == "MatMulNBits" || op.Type == "MatMulBnb4" || op.Type == "GatherBlockQuantized")
	}
	if blocks {
		return Blocks, nil
	}
	switch full, half, brain := s.Weights[onnxfile.Float], s.Weights[onnxfile.Float16], s.Weights[onnxfile.BFloat16]; {
	case half > full && half >= brain:
		return FP16, nil
	case brain > full:
		return BF16, nil
	}
	return FP32, nil
}

// OfIR returns the precision of a file of OpenVINO's IR: int8 if it has FakeQuantize layers or weights of 8 bit integers that are
// converted to floating point, otherwise fp32. Weights of 16 bits in an IR are a form of storage: in which precision they are used is a
// property of the compiled model.
func OfIR(path string) (p Precision, err error) {
	f, err := os.Open(path)
	if err != nil {
		return None, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, err = readIR(f)
	if err != nil {
		return None, fmt.Errorf("'%s' cannot be read as a file of OpenVINO's IR: %w", path, err)
	}
	return p, nil
}

// smallestWeight is the size in bytes of a constant that counts as a weight.
const smallestWeight = 1024

// errNotIR is the error of an XML file without a network.
var errNotIR = errors.New("it has no element 'net'")

// readIR reads the layers of an IR.
func readIR(r io.Reader) (Precision, error) {
	d := xml.NewDecoder(r)
	found, net, constant := FP32, false, ""
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) && net {
			return found, nil
		}
		if errors.Is(err, io.EOF) {
			return None, errNotIR
		}
		if err != nil {
			return None, err
		}
		e, ok := t.(xml.StartElement)
		if !ok {
			continue
		}
		switch e.Name.Local {
		case "net":
			net = true
		case "layer":
			constant = attribute(&e, "type")
			if constant == "FakeQuantize" {
				found = INT8
			}
		case "data":
			// A large constant of 8 bits is a weight: small ones are axes and flags.
			size, _ := strconv.ParseInt(attribute(&e, "size"), 10, 64)
			if kind := attribute(&e, "element_type"); constant == "Const" && (kind == "i8" || kind == "u8") && size >= smallestWeight {
				found = INT8
			}
		}
	}
}

func attribute(e *xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// OfFile returns the precision of a model file by the extension of its name: .onnx, or .xml of OpenVINO. It returns None for files whose
// formats are not read.
func OfFile(path string) (Precision, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".onnx":
		return OfONNX(path)
	case ".xml":
		return OfIR(path)
	}
	return None, nil
}
