package load

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/inference"
)

// Tensor is an input. Its elements are little-endian and without gaps. BYTES elements have their length before them
// in four bytes, as in the binary extension.
type Tensor struct {
	Name     string
	Datatype string
	Shape    []int64
	Data     []byte
}

// Request is one inference request.
type Request struct {
	Model   string
	Version string // empty for the server's choice
	Inputs  []Tensor
	// Outputs names the requested outputs. If it is empty, the server sends all of them. Requests in shared memory
	// must name their outputs.
	Outputs []string
}

// Floats returns an FP32 tensor.
func Floats(name string, shape []int64, values []float32) Tensor {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return Tensor{Name: name, Datatype: "FP32", Shape: shape, Data: data}
}

// Bytes returns a BYTES tensor.
func Bytes(name string, shape []int64, values ...[]byte) Tensor {
	var data []byte
	for _, v := range values {
		data = append(binary.LittleEndian.AppendUint32(data, uint32(len(v))), v...) //nolint:gosec // inputs are short
	}
	return Tensor{Name: name, Datatype: "BYTES", Shape: shape, Data: data}
}

// inputJSON and the types below are the JSON of a request.
type inputJSON struct {
	Name       string         `json:"name"`
	Datatype   string         `json:"datatype"`
	Shape      []int64        `json:"shape"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Data       any            `json:"data,omitempty"`
}

type outputJSON struct {
	Name       string         `json:"name"`
	Parameters map[string]any `json:"parameters,omitempty"`
}

type requestJSON struct {
	Inputs     []inputJSON    `json:"inputs"`
	Outputs    []outputJSON   `json:"outputs,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
}

func (r *Request) outputs() []outputJSON {
	var all []outputJSON
	for _, name := range r.Outputs {
		all = append(all, outputJSON{Name: name})
	}
	return all
}

// JSON encodes the request as a whole HTTP message with a JSON body. BYTES elements that are not UTF-8 are sent in
// base64, which the input's parameter content_type says. Servers without that parameter refuse them.
func (r *Request) JSON() ([]byte, error) {
	body := requestJSON{Outputs: r.outputs()}
	for i := range r.Inputs {
		in, err := r.Inputs[i].json()
		if err != nil {
			return nil, err
		}
		body.Inputs = append(body.Inputs, in)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return post(r.path(), "application/json", "", text), nil
}

// Binary encodes the request as a whole HTTP message in the binary extension. It requests binary outputs.
func (r *Request) Binary() ([]byte, error) {
	body := requestJSON{Outputs: r.outputs(), Parameters: map[string]any{"binary_data_output": true}}
	for i := range body.Outputs {
		body.Outputs[i].Parameters = map[string]any{"binary_data": true}
	}
	var data []byte
	for _, t := range r.Inputs {
		body.Inputs = append(body.Inputs, inputJSON{
			Name: t.Name, Datatype: t.Datatype, Shape: t.Shape, Parameters: map[string]any{"binary_data_size": len(t.Data)},
		})
		data = append(data, t.Data...)
	}
	header, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	length := fmt.Sprintf("Inference-Header-Content-Length: %d\r\n", len(header))
	return post(r.path(), "application/octet-stream", length, append(header, data...)), nil
}

// Proto encodes the request as a serialised message of the gRPC service, with raw contents.
func (r *Request) Proto() ([]byte, error) { return proto.Marshal(r.message()) }

// message returns the request as a message of the gRPC service, with raw contents.
func (r *Request) message() *inference.ModelInferRequest {
	m := &inference.ModelInferRequest{ModelName: r.Model, ModelVersion: r.Version}
	for _, t := range r.Inputs {
		m.Inputs = append(m.Inputs, &inference.ModelInferRequest_InferInputTensor{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape})
		m.RawInputContents = append(m.RawInputContents, t.Data)
	}
	for _, name := range r.Outputs {
		m.Outputs = append(m.Outputs, &inference.ModelInferRequest_InferRequestedOutputTensor{Name: name})
	}
	return m
}

// path returns the path of the request's URL.
func (r *Request) path() string { return r.modelPath() + "/infer" }

// modelPath returns the path of the model's URL.
func (r *Request) modelPath() string {
	path := "/v2/models/" + url.PathEscape(r.Model)
	if r.Version != "" {
		path += "/versions/" + url.PathEscape(r.Version)
	}
	return path
}

// localhost is the Host header of a message until address replaces it.
const localhost = "Host: localhost\r\n"

// address returns a message with the target's path, host and headers.
func (t *Target) address(message []byte) []byte {
	end := []byte("\r\n\r\n")
	head, body, _ := bytes.Cut(message, end)
	head = bytes.Replace(head, []byte("POST /"), []byte("POST "+strings.TrimSuffix(t.Path, "/")+"/"), 1)
	var lines bytes.Buffer
	host := t.HTTP
	for name, values := range t.Header {
		if name == "Host" {
			host = values[0]
			continue
		}
		for _, v := range values {
			lines.WriteString(name + ": " + v + "\r\n")
		}
	}
	head = bytes.Replace(head, []byte(localhost), append([]byte("Host: "+host+"\r\n"), lines.Bytes()...), 1)
	return slices.Concat(head, end, body)
}

// post returns a POST request. extra holds more header lines.
func post(path, kind, extra string, body []byte) []byte {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\n%sContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n", path, localhost, kind, extra, len(body))
	return append([]byte(head), body...)
}

func (t *Tensor) json() (inputJSON, error) {
	in := inputJSON{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape}
	v, err := decode(t.Datatype, t.Data)
	if err != nil {
		return in, fmt.Errorf("input '%s': %w", t.Name, err)
	}
	if t.Datatype == "BYTES" {
		if !texts(v.Strings) {
			in.Parameters = map[string]any{"content_type": "base64"}
			for i, s := range v.Strings {
				v.Strings[i] = base64.StdEncoding.EncodeToString([]byte(s))
			}
		}
		in.Data = v.Strings
		return in, nil
	}
	numbers := make([]json.RawMessage, len(v.Floats))
	for i, f := range v.Floats {
		numbers[i] = number(t.Datatype, f)
	}
	in.Data = numbers
	return in, nil
}

func texts(values []string) bool {
	for _, s := range values {
		if !utf8.ValidString(s) {
			return false
		}
	}
	return true
}

// number formats an element so that the server reads back the same value.
func number(datatype string, f float64) json.RawMessage {
	switch datatype {
	case "BOOL":
		return strconv.AppendBool(nil, f != 0)
	case "FP64":
		return strconv.AppendFloat(nil, f, 'g', -1, 64)
	case "FP32":
		return strconv.AppendFloat(nil, f, 'g', -1, 32)
	}
	return strconv.AppendInt(nil, int64(f), 10)
}
