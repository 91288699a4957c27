package tools

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
)

// printer prints responses as JSON. Images become content of their own.
type printer struct {
	*tool

	b      []byte
	images []mcp.Content
	text   []byte // of the only output, if that is one string
}

// result returns the result of a call: the outputs as structured content, the same as text, and images. Responses of a decoupled model whose
// only output is a string are one text.
func (t *tool) result(list []*infer.Response) (*mcp.CallToolResult, error) {
	p := printer{tool: t}
	if t.desc.Decoupled {
		p.b = append(p.b, `{"`+responses+`":[`...)
	}
	for i, r := range list {
		if i > 0 {
			p.b = append(p.b, ',')
		}
		if err := p.response(r); err != nil {
			return nil, err
		}
	}
	if t.desc.Decoupled {
		p.b = append(p.b, "]}"...)
	}
	text := string(p.b)
	if t.desc.Decoupled && t.isText() {
		text = string(p.text)
	}
	return &mcp.CallToolResult{
		StructuredContent: json.RawMessage(p.b), Content: append([]mcp.Content{&mcp.TextContent{Text: text}}, p.images...),
	}, nil
}

// isText reports whether the only output is one string.
func (t *tool) isText() bool {
	return len(t.desc.Outputs) == 1 && t.desc.Outputs[0].DType == tensor.Bytes && single(t.dims(&t.desc.Outputs[0]))
}

func (p *printer) response(r *infer.Response) error {
	p.b = append(p.b, '{')
	for i := range r.Outputs {
		if i > 0 {
			p.b = append(p.b, ',')
		}
		p.b = append(jsontext.Append(p.b, r.Outputs[i].Name), ':')
		if err := p.output(&r.Outputs[i]); err != nil {
			return err
		}
	}
	p.b = append(p.b, '}')
	return nil
}

func (p *printer) output(out *infer.Named) error {
	dims := out.Tensor.Shape.Dims()
	if p.desc.MaxBatch > 0 && len(dims) > 0 {
		if dims[0] != 1 {
			return status.Errorf(status.Internal, "the output '%s' has %d rows for one item, expected one", out.Name, dims[0])
		}
		dims = dims[1:]
	}
	if port := p.desc.Output(out.Name); port != nil && single(p.dims(port)) && out.Tensor.Shape.Elements() == 1 {
		dims = nil
	}
	rest, err := p.nested(&out.Tensor, dims, out.Tensor.Bytes())
	if err == nil && len(rest) > 0 {
		err = errSize
	}
	if err != nil {
		return status.Errorf(status.Internal, "output '%s': %w", out.Name, err)
	}
	return nil
}

// errSize is the error of a tensor whose bytes are not as many as its shape says.
var errSize = status.Errorf(status.Internal, "the shape does not match the size of the tensor")

// nested prints elements from the front of raw in arrays of dims, and returns what is left.
func (p *printer) nested(t *tensor.Tensor, dims []int64, raw []byte) (rest []byte, err error) {
	if len(dims) == 0 {
		return p.element(t.DType, raw)
	}
	p.b = append(p.b, '[')
	for i := range dims[0] {
		if i > 0 {
			p.b = append(p.b, ',')
		}
		if raw, err = p.nested(t, dims[1:], raw); err != nil {
			return nil, err
		}
	}
	p.b = append(p.b, ']')
	return raw, nil
}

func (p *printer) element(d tensor.DType, raw []byte) (rest []byte, err error) {
	if d == tensor.Bytes {
		elem, rest, ok := tensor.NextBytes(raw)
		if !ok {
			return nil, errSize
		}
		p.string(elem)
		return rest, nil
	}
	size := d.Size()
	if size == 0 || len(raw) < size {
		return nil, errSize
	}
	var bits uint64
	for i := size - 1; i >= 0; i-- {
		bits = bits<<8 | uint64(raw[i])
	}
	switch d {
	case tensor.Bool:
		p.b = strconv.AppendBool(p.b, bits != 0)
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		p.b = strconv.AppendUint(p.b, bits, 10)
	case tensor.FP16:
		p.float(float64(tensor.FP16ToFloat32(binary.LittleEndian.Uint16(raw))), 32)
	case tensor.BF16:
		p.float(float64(tensor.BF16ToFloat32(binary.LittleEndian.Uint16(raw))), 32)
	case tensor.FP32:
		p.float(float64(math.Float32frombits(uint32(bits))), 32)
	case tensor.FP64:
		p.float(math.Float64frombits(bits), 64)
	default:
		unused := 64 - 8*size
		p.b = strconv.AppendInt(p.b, int64(bits<<unused)>>unused, 10) //nolint:gosec // extends the sign
	}
	return raw[size:], nil
}

// float prints the shortest number with the same value in so many bits.
func (p *printer) float(f float64, bits int) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		p.b = append(p.b, "null"...)
		return
	}
	p.b = strconv.AppendFloat(p.b, f, 'g', -1, bits)
}

// string prints an element of BYTES: text as it is, an image as a note that names its content, other bytes as a data URI.
func (p *printer) string(s []byte) {
	if utf8.Valid(s) {
		p.b = jsontext.Append(p.b, s)
		p.text = append(p.text, s...)
		return
	}
	if kind := http.DetectContentType(s); strings.HasPrefix(kind, "image/") {
		// Content 0 is the text.
		p.b = jsontext.Append(p.b, fmt.Sprintf("(%s of %d bytes: content %d)", kind, len(s), len(p.images)+1))
		p.images = append(p.images, &mcp.ImageContent{Data: slices.Clone(s), MIMEType: kind})
		return
	}
	p.b = append(p.b, `"data:application/octet-stream;base64,`...)
	p.b = append(base64.StdEncoding.AppendEncode(p.b, s), '"')
}
