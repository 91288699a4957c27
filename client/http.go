package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// headerLength is the header with the length of the JSON at the beginning of a body; binary tensors follow it.
const headerLength = "Inference-Header-Content-Length"

// The headers, or keys of metadata, of W3C Trace Context.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

// HTTPOptions are the options of an HTTP client.
type HTTPOptions struct {
	Options
	// JSON sends and requests tensors as JSON; otherwise they are binary.
	JSON bool

	_ struct{}
}

// HTTP is a client over HTTP.
type HTTP struct {
	url   string
	json  bool
	http  http.Client
	retry *Retry
}

var _ Conn = (*HTTP)(nil)

// idlePerHost is the most idle connections that a client keeps open.
const idlePerHost = 64

// NewHTTP returns a client of the server at a URL. For example: http://127.0.0.1:8000. The options may be nil.
func NewHTTP(server string, o *HTTPOptions) *HTTP {
	if o == nil {
		o = &HTTPOptions{}
	}
	return &HTTP{url: strings.TrimSuffix(server, "/"), json: o.JSON, http: http.Client{Transport: o.RoundTripper(), CheckRedirect: CheckRedirect}, retry: o.Retry}
}

// Close closes idle connections.
func (c *HTTP) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// inferBody is the JSON part of a request.
type inferBody struct {
	ID         string         `json:"id,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Inputs     []any          `json:"inputs"`
	Outputs    []wantedBody   `json:"outputs,omitempty"`
}

type wantedBody struct {
	Name       string      `json:"name"`
	Parameters *wireParams `json:"parameters,omitempty"`
}

// body returns the body of a request and the length of its JSON part.
func (c *HTTP) body(req *Request) (body []byte, header int, err error) {
	b := inferBody{ID: req.ID, Inputs: []any{}}
	if b.Parameters, err = req.parameters(); err != nil {
		return nil, 0, err
	}
	var tail []byte
	if !c.json {
		b.Parameters["binary_data_output"] = true
	}
	for i := range req.Inputs {
		in := &req.Inputs[i]
		if c.json || in.Region != nil {
			b.Inputs = append(b.Inputs, in)
			continue
		}
		size := len(in.Data)
		b.Inputs = append(b.Inputs, wire{Name: in.Name, Datatype: in.DType.String(), Shape: in.Shape, Parameters: &wireParams{BinarySize: &size}})
		tail = append(tail, in.Data...)
	}
	for _, name := range req.Outputs {
		out := wantedBody{Name: name}
		if !c.json { // the request's parameter applies only to outputs that it does not name
			out.Parameters = &wireParams{Binary: true}
		}
		if r, ok := req.Regions[name]; ok {
			out.Parameters = r.wire()
		}
		b.Outputs = append(b.Outputs, out)
	}
	head, err := json.Marshal(b)
	return append(head, tail...), len(head), err
}

// Infer sends one request and returns its response.
func (c *HTTP) Infer(ctx context.Context, req *Request) (resp *Response, err error) {
	hr, err := c.newInfer(ctx, req)
	if err != nil {
		return nil, err
	}
	r, err := c.send(hr, req.Sequence == nil)
	if err != nil {
		return nil, err
	}
	return r.parse(req.Regions)
}

// send is do with retries, if the request may be sent again.
func (c *HTTP) send(hr *http.Request, again bool) (r *reply, err error) {
	if !again {
		return c.do(hr)
	}
	err = c.retry.do(hr.Context(), func() error {
		if hr.GetBody != nil {
			if hr.Body, err = hr.GetBody(); err != nil {
				return err
			}
		}
		r, err = c.do(hr)
		return err
	})
	return r, err
}

// newInfer returns the HTTP request of an inference request.
func (c *HTTP) newInfer(ctx context.Context, req *Request) (*http.Request, error) {
	body, header, err := c.body(req)
	if err != nil {
		return nil, err
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+modelPath(req.Model, req.Version)+"/infer", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if !c.json {
		hr.Header.Set(headerLength, strconv.Itoa(header))
	}
	if req.TraceParent != "" {
		hr.Header.Set(traceParent, req.TraceParent)
		hr.Header.Set(traceState, req.TraceState)
	}
	return hr, nil
}

// modelPath returns the path of a model, or of one of its versions.
func modelPath(model, version string) string {
	path := "/v2/models/" + url.PathEscape(model)
	if version != "" {
		path += "/versions/" + url.PathEscape(version)
	}
	return path
}

// reply is a response with a status from 200 to 299.
type reply struct {
	code   int
	header http.Header
	body   []byte
}

// do sends a request and returns its response. Another status than 200 to 299 is an *Error.
func (c *HTTP) do(hr *http.Request) (*reply, error) {
	resp, err := c.http.Do(hr)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && resp.StatusCode/100 != 2 {
		err = newError(resp, body)
	}
	if err != nil {
		return nil, err
	}
	return &reply{resp.StatusCode, resp.Header, body}, nil
}

// newError returns the error of a response with another status than 200 to 299.
func newError(resp *http.Response, body []byte) *Error {
	refusal := &Error{
		Status: resp.Status, RetryAfter: retryAfter(resp.Header.Get("Retry-After")), Retryable: retryable(resp.Status), Reason: resp.Header.Get("Tutti-Error-Reason"),
	}
	if again, err := strconv.ParseBool(resp.Header.Get("Tutti-Error-Retryable")); err == nil {
		refusal.Retryable = again
	}
	if after := milliseconds(resp.Header.Get("Tutti-Retry-After-Ms")); after > 0 {
		refusal.RetryAfter = after
	}
	var e errorBody
	if json.Unmarshal(body, &e) == nil && e.Error != nil {
		e.explain(refusal)
	} else {
		refusal.Text, refusal.Foreign = beginning(body), true
	}
	return refusal
}

// errorBody is the JSON form of an error.
type errorBody struct {
	Error      *string `json:"error"`
	Reason     string  `json:"reason"`
	Retryable  *bool   `json:"retryable"`
	RetryAfter uint32  `json:"retry_after_ms"`
	Step       string  `json:"step"`
	Finish     uint32  `json:"predicted_finish_ms"`
}

// explain sets the text of an error, and what the body says besides.
func (b *errorBody) explain(e *Error) {
	e.Text, e.Step, e.Finish = *b.Error, b.Step, time.Duration(b.Finish)*time.Millisecond
	if b.Reason != "" {
		e.Reason = b.Reason
	}
	if b.Retryable != nil {
		e.Retryable = *b.Retryable
	}
	if b.RetryAfter > 0 {
		e.RetryAfter = time.Duration(b.RetryAfter) * time.Millisecond
	}
}

// parse decodes the body of a response to an inference request whose outputs of these names are in shared memory.
func (r *reply) parse(regions map[string]Region) (*Response, error) {
	return parseResponse(r.body, r.header.Get(headerLength), regions)
}

// parseResponse decodes the body of a response. header is the length of its JSON part; if it is empty, the body has
// no binary part. The outputs in regions have no data.
func parseResponse(body []byte, header string, regions map[string]Region) (*Response, error) {
	head, tail := body, []byte(nil)
	if header != "" {
		n, err := strconv.ParseUint(header, 10, 31)
		if err != nil || n > uint64(len(body)) {
			return nil, fmt.Errorf("the response of %d bytes says that its JSON has '%s'", len(body), header)
		}
		head, tail = body[:n], body[n:]
	}
	var a struct {
		ID      string `json:"id"`
		Model   string `json:"model_name"`
		Version string `json:"model_version"`
		Outputs []wire `json:"outputs"`

		Parameters map[string]any `json:"parameters"`
	}
	if err := json.Unmarshal(head, &a); err != nil {
		return nil, fmt.Errorf("the response is not JSON: %w", err)
	}
	resp := &Response{Model: a.Model, Version: a.Version, ID: a.ID, Parameters: a.Parameters}
	for i := range a.Outputs {
		if at, ok := regions[a.Outputs[i].Name]; ok && a.Outputs[i].Data == nil {
			a.Outputs[i].Parameters = at.wire()
		}
		t, rest, err := a.Outputs[i].tensor(tail)
		if err != nil {
			return nil, err
		}
		resp.Outputs, tail = append(resp.Outputs, t), rest
	}
	return resp, nil
}

// tensor returns the tensor that w describes and the rest of the binary part.
func (w *wire) tensor(tail []byte) (Tensor, []byte, error) {
	t := Tensor{Name: w.Name, DType: tensor.ParseDType(w.Datatype), Shape: w.Shape}
	if w.Parameters != nil && w.Parameters.Region != "" {
		r := w.Parameters.wireRegion
		t.Region = &Region{Name: r.Region, Offset: r.Offset, Size: r.Size}
		return t, tail, nil
	}
	if w.Parameters == nil || w.Parameters.BinarySize == nil {
		return t, tail, t.parse(w.Data)
	}
	n := *w.Parameters.BinarySize
	if n < 0 || n > len(tail) {
		return t, nil, fmt.Errorf("output '%s' says that it has %d bytes, but %d are left", w.Name, n, len(tail))
	}
	t.Data = tail[:n:n]
	return t, tail[n:], nil
}

// call gets a path, or posts a body as JSON, and decodes the JSON response into to. body and to may be nil.
func (c *HTTP) call(ctx context.Context, path string, body, to any) error {
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		text, _ = json.Marshal(body) // the bodies are maps of plain values
	}
	hr, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r, err := c.send(hr, body == nil || path == indexPath)
	if err != nil || to == nil {
		return err
	}
	if err := json.Unmarshal(r.body, to); err != nil {
		return &ForeignError{hr.URL.String(), beginning(r.body), err}
	}
	return nil
}

// Ready reports whether the server is ready.
func (c *HTTP) Ready(ctx context.Context) (bool, error) { return c.healthy(ctx, "/v2/health/ready") }

// Metadata describes a model.
func (c *HTTP) Metadata(ctx context.Context, model string) (*infer.Metadata, error) {
	md := &infer.Metadata{}
	return md, c.call(ctx, modelPath(model, ""), nil, md)
}

// Decoupled reports whether a model may send any number of responses to a request.
func (c *HTTP) Decoupled(ctx context.Context, model, version string) (bool, error) {
	var cfg struct {
		Policy struct {
			Decoupled bool `json:"decoupled"`
		} `json:"model_transaction_policy"`
	}
	err := c.call(ctx, modelPath(model, version)+"/config", nil, &cfg)
	return cfg.Policy.Decoupled, err
}

// Statistics returns the statistics of a model, or of all models if model is empty.
func (c *HTTP) Statistics(ctx context.Context, model string) ([]infer.Statistics, error) {
	path := "/v2/models/stats"
	if model != "" {
		path = modelPath(model, "") + "/stats"
	}
	var a struct {
		Models []infer.Statistics `json:"model_stats"`
	}
	err := c.call(ctx, path, nil, &a)
	return a.Models, err
}

// indexPath is the path of a request that only reads, although it is posted.
const indexPath = "/v2/repository/index"

// Index lists the models of the server's repositories.
func (c *HTTP) Index(ctx context.Context) ([]infer.Entry, error) {
	var list []infer.Entry
	err := c.call(ctx, indexPath, map[string]bool{"ready": false}, &list)
	return list, err
}

// Unload unloads a model. With dependents, it also unloads the models that were loaded only for it.
func (c *HTTP) Unload(ctx context.Context, model string, dependents bool) error {
	body := map[string]any{"parameters": map[string]bool{"unload_dependents": dependents}}
	return c.call(ctx, "/v2/repository/models/"+url.PathEscape(model)+"/unload", body, nil)
}

// Config returns the completed configuration of a model.
func (c *HTTP) Config(ctx context.Context, model string) (*modelconfig.ModelConfig, error) {
	var text json.RawMessage
	if err := c.call(ctx, modelPath(model, "")+"/config", nil, &text); err != nil {
		return nil, err
	}
	return config.ParseJSON(string(text))
}
