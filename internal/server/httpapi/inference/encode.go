package inference

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/tensorjson"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// respond writes the response: its JSON, then each binary output from the memory of its tensor.
func (x *exchange) respond(w http.ResponseWriter, request http.Header, resp *infer.Response) error {
	size, err := x.encode(resp)
	if err != nil {
		return err
	}
	x.in.Charge.Add(int64(len(x.out)))
	c := transport.Negotiate(request, w.Header())
	x.setHeaders(w.Header(), size, c != transport.Identity)
	// Errors are those of a client that has disconnected.
	if c != transport.Identity {
		_ = transport.Compress(w, c, func(z io.Writer) error { return x.write(z, resp) })
		return nil
	}
	if size < transport.SlowWrite {
		_ = x.write(w, resp)
		return nil
	}
	slow := x.srv.Writer(w)
	_ = x.write(&slow, resp)
	slow.End()
	return nil
}

func (x *exchange) write(w io.Writer, resp *infer.Response) error {
	if _, err := w.Write(x.out); err != nil {
		return err
	}
	for i := range resp.Outputs {
		if t := &resp.Outputs[i].Tensor; t.Len > 0 && x.wanted.isBinary(resp.Outputs[i].Name, i) {
			if _, err := w.Write(t.Bytes()); err != nil {
				return err
			}
		}
	}
	return nil
}

// setHeaders sets Content-Type and the lengths of a response with size bytes of binary tensors, -1 for a response that is all
// JSON. The total length of a compressed response is unknown.
func (x *exchange) setHeaders(h http.Header, size int64, compressed bool) {
	h["Content-Type"] = transport.JSONType
	if size >= 0 {
		h["Content-Type"] = transport.BinaryType
	}
	switch {
	case size < 0 && !compressed:
		h["Content-Length"] = []string{strconv.Itoa(len(x.out))}
		return
	case size < 0:
		return
	}
	// The two lengths share one string and one slice. Neither can be pooled: the server may read them after the handler has
	// returned.
	var digits [40]byte
	b := strconv.AppendInt(digits[:0], int64(len(x.out)), 10)
	n := len(b)
	b = strconv.AppendInt(b, int64(len(x.out))+size, 10)
	both := string(b)
	values := []string{both[:n], both[n:]}
	h[transport.JSONLength] = values[:1:1]
	if !compressed {
		h["Content-Length"] = values[1:]
	}
}

// output returns what the request says about output i, nil when it does not name it. Responses have the order of the request, so
// that the search is rare.
func (w *wanted) output(name string, i int) *output {
	if i < len(w.outputs) && w.outputs[i].name == name {
		return &w.outputs[i]
	}
	for j := range w.outputs {
		if w.outputs[j].name == name {
			return &w.outputs[j]
		}
	}
	return nil
}

// isBinary reports whether output i is sent in binary.
func (w *wanted) isBinary(name string, i int) bool {
	if o := w.output(name, i); o != nil {
		return o.binary
	}
	return w.binary
}

// isShared reports whether output i goes to shared memory. The response then has its description only.
func (w *wanted) isShared(name string, i int) bool {
	o := w.output(name, i)
	return o != nil && o.window != nil
}

// encode writes the response's JSON to x.out and returns the size of the binary tensors that follow it, -1 when none do.
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
		if x.wanted.isShared(out.Name, i) {
			b = append(b, '}')
			continue
		}
		if x.wanted.isBinary(out.Name, i) {
			b = append(b, `,"parameters":{"binary_data_size":`...)
			b = append(strconv.AppendInt(b, int64(out.Tensor.Len), 10), "}}"...)
			if out.Tensor.Len > 0 {
				size = max(size, 0) + int64(out.Tensor.Len)
			}
			continue
		}
		b = append(b, `,"data":[`...)
		if b, err = tensorjson.AppendData(b, out); err != nil {
			return 0, err
		}
		b = append(b, "]}"...)
	}
	b = append(b, "]}"...)
	x.out = b
	return size, nil
}

// appendOutput appends an output's name, type and shape, without the closing brace.
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

// appendParams appends the response's parameters, if any. Those of an ensemble begin with its sequence, as in Triton.
func appendParams(b []byte, resp *infer.Response) []byte {
	if !resp.Ensemble && len(resp.Params) == 0 {
		return b
	}
	b = append(b, `,"parameters":{`...)
	if resp.Ensemble {
		for _, p := range sequenceParams(&resp.Sequence) {
			b = append(appendParam(b, &p), ',')
		}
	}
	for i := range resp.Params {
		b = append(appendParam(b, &resp.Params[i]), ',')
	}
	b[len(b)-1] = '}'
	return b
}

// sequenceParams returns the parameters of a sequence.
func sequenceParams(s *infer.Sequence) [3]infer.Param {
	id := infer.Param{Key: "sequence_id", Kind: infer.ParamUint, Uint: s.ID}
	if s.Name != "" {
		id = infer.Param{Key: "sequence_id", Kind: infer.ParamString, String: s.Name}
	}
	return [...]infer.Param{
		id, {Key: "sequence_start", Kind: infer.ParamBool, Bool: s.Start}, {Key: "sequence_end", Kind: infer.ParamBool, Bool: s.End},
	}
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
		return jsonwire.AppendFloat(b, p.Double)
	default:
		return jsontext.Append(b, p.String)
	}
}

// member is a member of a generate response: a parameter, or an output with the name in Key.
type member struct {
	infer.Param
	out *infer.Named
}

// appendResponse appends a response as one flat JSON object with sorted members, as Triton does. An output of one element is a
// scalar. For example: {"model_name":"m","model_version":"1","text_output":"hello"}.
func (x *exchange) appendResponse(b []byte, resp *infer.Response) ([]byte, error) {
	members := x.sortedMembers(resp)
	b = append(b, '{')
	var err error
	for i := range members {
		m := &members[i]
		if i > 0 && members[i-1].Key == m.Key {
			continue // the server's member comes before the model's
		}
		if i > 0 {
			b = append(b, ',')
		}
		if m.out == nil {
			b = appendParam(b, &m.Param)
		} else if b, err = appendValue(append(jsontext.Append(b, m.Key), ':'), m.out); err != nil {
			break
		}
	}
	clear(members)
	return append(b, '}'), err
}

// sortedMembers returns the members of the response. Of equal names the server's comes first.
func (x *exchange) sortedMembers(resp *infer.Response) []member {
	list := x.members[:0]
	add := func(p infer.Param) { list = append(list, member{Param: p}) }
	if resp.ID != "" {
		add(infer.Param{Key: "id", Kind: infer.ParamString, String: resp.ID})
	}
	add(infer.Param{Key: "model_name", Kind: infer.ParamString, String: resp.Model})
	add(infer.Param{Key: "model_version", Kind: infer.ParamString, String: strconv.FormatInt(resp.Version, 10)})
	if resp.Ensemble {
		for _, p := range sequenceParams(&resp.Sequence) {
			add(p)
		}
	}
	for i := range resp.Params {
		add(resp.Params[i])
	}
	for i := range resp.Outputs {
		list = append(list, member{infer.Param{Key: resp.Outputs[i].Name}, &resp.Outputs[i]})
	}
	slices.SortStableFunc(list, func(a, b member) int { return strings.Compare(a.Key, b.Key) })
	x.members = list
	return list
}

// appendValue appends an output as a scalar or a flat array.
func appendValue(b []byte, out *infer.Named) ([]byte, error) {
	if out.Tensor.Shape.Elements() == 1 {
		return tensorjson.AppendData(b, out)
	}
	b, err := tensorjson.AppendData(append(b, '['), out)
	return append(b, ']'), err
}
