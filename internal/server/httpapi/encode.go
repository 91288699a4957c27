package httpapi

import (
	"io"
	"net/http"
	"strconv"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/jsontext"
)

// Header values that never change are shared: the header map keeps slices, not copies.
var (
	jsonType   = []string{"application/json"}
	binaryType = []string{"application/octet-stream"}
	textType   = []string{"text/plain"}
	closeValue = []string{"close"}
)

// reply writes the answer: its JSON, then the outputs asked for in binary, each
// from the tensor's own memory.
func (x *exchange) reply(w http.ResponseWriter, asked http.Header, resp *infer.Response) error {
	size, err := x.encode(resp)
	if err != nil {
		return err
	}
	x.charge.Add(int64(len(x.out)))
	h, c := w.Header(), codingIdentity
	if len(asked["Accept-Encoding"]) > 0 {
		h["Vary"], c = varyValue, accepted(asked)
	}
	// A client that is gone by now gets nothing; there is nobody left to tell.
	if c != codingIdentity {
		h["Content-Encoding"] = codingValues[c]
		x.headers(h, size, true)
		_ = squeeze(w, c, func(z io.Writer) error { return x.write(z, resp) })
		return nil
	}
	x.headers(h, size, false)
	if size < slowWrite {
		_ = x.write(w, resp)
		return nil
	}
	slow := patient{w: w, stall: x.srv.stall}
	_ = x.write(&slow, resp)
	slow.end()
	return nil
}

func (x *exchange) write(w io.Writer, resp *infer.Response) error {
	if _, err := w.Write(x.out); err != nil {
		return err
	}
	for i := range resp.Outputs {
		if t := &resp.Outputs[i].Tensor; t.Len > 0 && x.isBinary(resp.Outputs[i].Name, i) {
			if _, err := w.Write(t.Bytes()); err != nil {
				return err
			}
		}
	}
	return nil
}

// headers sets those of an answer with size bytes of tensors, -1 for an answer that
// is all JSON. One that is yet to be compressed does not say how long it is.
func (x *exchange) headers(h http.Header, size int64, squeezed bool) {
	h["Content-Type"] = jsonType
	if size >= 0 {
		h["Content-Type"] = binaryType
	}
	switch {
	case size < 0 && !squeezed:
		h["Content-Length"] = []string{strconv.Itoa(len(x.out))}
		return
	case size < 0:
		return
	}
	// The lengths share one string and one slice. Neither can be pooled: the server
	// may read them after the handler has returned.
	var digits [40]byte
	b := strconv.AppendInt(digits[:0], int64(len(x.out)), 10)
	n := len(b)
	b = strconv.AppendInt(b, int64(len(x.out))+size, 10)
	both := string(b)
	values := []string{both[:n], both[n:]}
	h[jsonLength] = values[:1:1]
	if !squeezed {
		h["Content-Length"] = values[1:]
	}
}

// wanted returns what was asked for output i, nil when it was not asked for by name.
// Answers come in the order of the request, so looking beyond index i is rare.
func (x *exchange) wanted(name string, i int) *want {
	if i < len(x.wants) && x.wants[i].name == name {
		return &x.wants[i]
	}
	for j := range x.wants {
		if x.wants[j].name == name {
			return &x.wants[j]
		}
	}
	return nil
}

// isBinary reports whether output i is sent in binary.
func (x *exchange) isBinary(name string, i int) bool {
	if w := x.wanted(name, i); w != nil {
		return w.binary
	}
	return x.binary
}

// isShared reports whether output i goes to shared memory: the answer says nothing of
// its values then.
func (x *exchange) isShared(name string, i int) bool {
	w := x.wanted(name, i)
	return w != nil && w.shared
}

// encode writes the answer's JSON to x.out and returns the bytes of tensors that
// follow it, -1 when there are none.
//
// hot: no allocation once x.out has grown.
func (x *exchange) encode(resp *infer.Response) (size int64, err error) {
	b := x.out[:0]
	b = append(b, '{')
	if resp.ID != "" {
		b = append(b, `"id":`...)
		b = append(jsontext.Append(b, resp.ID), ',')
	}
	b = append(b, `"model_name":`...)
	b = jsontext.Append(b, resp.Model)
	b = append(b, `,"model_version":"`...)
	b = strconv.AppendInt(b, resp.Version, 10)
	b = append(b, '"')
	b = appendParams(b, resp)
	b = append(b, `,"outputs":[`...)
	size = -1
	for i := range resp.Outputs {
		if i > 0 {
			b = append(b, ',')
		}
		out := &resp.Outputs[i]
		b = appendOutput(b, out)
		if x.isShared(out.Name, i) {
			b = append(b, '}')
			continue
		}
		if x.isBinary(out.Name, i) {
			b = append(b, `,"parameters":{"binary_data_size":`...)
			b = append(strconv.AppendInt(b, int64(out.Tensor.Len), 10), "}}"...)
			if out.Tensor.Len > 0 {
				size = max(size, 0) + int64(out.Tensor.Len)
			}
			continue
		}
		b = append(b, `,"data":[`...)
		if b, err = appendData(b, out); err != nil {
			return 0, err
		}
		b = append(b, "]}"...)
	}
	b = append(b, "]}"...)
	x.out = b
	return size, nil
}

// appendOutput appends what every output has, without the closing brace.
func appendOutput(b []byte, out *infer.Named) []byte {
	b = append(b, `{"name":`...)
	b = jsontext.Append(b, out.Name)
	b = append(b, `,"datatype":"`...)
	b = append(b, out.Tensor.DType.String()...)
	b = append(b, `","shape":[`...)
	for i, d := range out.Tensor.Shape.Dims() {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return append(b, ']')
}

// appendParams appends the answer's parameters, if it has any. An ensemble's have
// the sequence, the request's or a step's, at their head.
func appendParams(b []byte, resp *infer.Response) []byte {
	if !resp.Ensemble && len(resp.Params) == 0 {
		return b
	}
	b = append(b, `,"parameters":{`...)
	if resp.Ensemble {
		b = append(b, `"sequence_id":`...)
		if resp.Sequence.Name != "" {
			b = jsontext.Append(b, resp.Sequence.Name)
		} else {
			b = strconv.AppendUint(b, resp.Sequence.ID, 10)
		}
		b = strconv.AppendBool(append(b, `,"sequence_start":`...), resp.Sequence.Start)
		b = strconv.AppendBool(append(b, `,"sequence_end":`...), resp.Sequence.End)
	}
	for i := range resp.Params {
		if i > 0 || resp.Ensemble {
			b = append(b, ',')
		}
		b = appendParam(b, &resp.Params[i])
	}
	return append(b, '}')
}

func appendParam(b []byte, p *infer.Param) []byte {
	b = append(jsontext.Append(b, p.Key), ':')
	switch p.Kind {
	case infer.ParamBool:
		return strconv.AppendBool(b, p.Bool)
	case infer.ParamInt:
		return strconv.AppendInt(b, p.Int, 10)
	case infer.ParamUint:
		return strconv.AppendUint(b, p.Uint, 10)
	case infer.ParamDouble:
		return appendFloat(b, p.Double)
	default:
		return jsontext.Append(b, p.String)
	}
}
