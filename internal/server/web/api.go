package web

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

// endpoint handles one kind of request. Its result is a *file, a plain text, or a value that is encoded as JSON.
type endpoint func(r *http.Request) (any, error)

// plain is a text response.
type plain string

// file is a response that the browser saves as a file.
type file struct {
	kind, name string
	write      func(io.Writer) error
}

// What the server says about parts that it does not have.
var (
	errNoTraces   = status.Reasonf(status.NotEnabled, "no traces are stored, expected --trace-store-bytes")
	errNoCaptures = status.Reasonf(status.NotEnabled, "no tensors are kept, expected --dashboard-token and --capture-bytes")
	errNoDetails  = status.Errorf(status.Unsupported, "models are not described here")
	errNoHistory  = status.Errorf(status.Unsupported, "no figures of the past are stored here")
	errNoLoader   = status.Errorf(status.Unsupported, "models are not loaded here")
)

// with returns an endpoint over a part of the server, which fails with missing when the part is nil.
func with[T any](part T, missing error, f func(T, *http.Request) (any, error)) endpoint {
	if any(part) == nil {
		return func(*http.Request) (any, error) { return nil, missing }
	}
	return func(r *http.Request) (any, error) { return f(part, r) }
}

// addRoutes adds all endpoints. Tensor contents need the token.
func (s *Server) addRoutes() {
	traces := func(pattern string, secret bool, f func(inspect.Inspector, *http.Request) (any, error)) {
		s.route(pattern, infer.APITrace, secret, with(s.set.Inspector, errNoTraces, f))
	}
	captures := func(pattern string, secret bool, f func(inspect.Captures, *http.Request) (any, error)) {
		s.route(pattern, infer.APITrace, secret, with(s.set.Captures, errNoCaptures, f))
	}
	s.route("GET server", infer.APIMetadata, false, func(*http.Request) (any, error) { return s.set.Overview.Server(), nil })
	s.route("GET session", infer.APINone, false, func(r *http.Request) (any, error) {
		return struct {
			Token    bool `json:"token"`
			Admitted bool `json:"admitted"`
		}{s.set.Token != "" || s.set.Guard.Required(), s.try(r)}, nil
	})
	s.route("GET models", infer.APIStatistics, false, func(*http.Request) (any, error) { return map[string]any{"models": s.set.Overview.Models()}, nil })
	s.route("GET models/{model}", infer.APIModelConfig, false, with(s.set.Details, errNoDetails, func(d inspect.Details, r *http.Request) (any, error) {
		return d.Detail(r.Context(), r.PathValue("model"))
	}))
	s.route("GET history", infer.APIStatistics, false, with(s.set.History, errNoHistory, past))
	s.route("GET graph/{model}", infer.APIModelConfig, false, s.graph)
	s.route("GET models/{model}/examples", infer.APIModelConfig, false, s.examples)
	traces("GET traces", false, listTraces)
	traces("GET traces/{id}", false, s.trace)
	traces("GET batches/{id}", false, numbered("batch", inspect.Inspector.FindBatch))
	traces("GET timeline", false, s.timeline)
	traces("GET sampling", false, func(i inspect.Inspector, _ *http.Request) (any, error) { return i.Sampling(), nil })
	traces("PUT sampling", true, setSampling)
	captures("GET captures", false, func(c inspect.Captures, _ *http.Request) (any, error) { return c.Captures(), nil })
	captures("POST captures", true, startCapture)
	captures("GET captures/{id}", false, numbered("capture", inspect.Captures.FindCapture))
	captures("DELETE captures/{id}", true, numbered("capture", stopCapture))
	captures("GET traces/{id}/tensors", false, func(c inspect.Captures, r *http.Request) (any, error) {
		return c.Tensors(r.PathValue("id"), s.admitted(r))
	})
	captures("GET traces/{id}/tensors/{file}", true, tensorFile)
	captures("GET traces/{id}/capture.npz", true, captureFile)
	s.route("POST models/{model}/load", infer.APIModelRepository, true, with(s.set.Lifecycle, errNoLoader, load))
	s.route("POST models/{model}/unload", infer.APIModelRepository, true, with(s.set.Lifecycle, errNoLoader, unload))
}

func (s *Server) graph(r *http.Request) (any, error) {
	version, err := infer.ParseVersion(r.URL.Query().Get("version"))
	if err != nil {
		return nil, err
	}
	return s.set.Overview.Graph(r.PathValue("model"), version)
}

// examples returns the examples of a model's inputs.
func (s *Server) examples(r *http.Request) (any, error) {
	list, err := []inspect.ExampleView{}, error(nil)
	if s.set.Examples != nil {
		list, err = s.set.Examples(r.PathValue("model"))
	}
	return map[string]any{"examples": list}, err
}

func listTraces(store inspect.Inspector, r *http.Request) (any, error) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return store.Traces(q)
}

// parseQuery reads a trace query. An unknown parameter is an error. For example, "?model=resnet&min_ns=1000000"
// selects the traces of resnet of at least 1 ms.
func parseQuery(v url.Values) (*inspect.TraceQuery, error) {
	q := &inspect.TraceQuery{}
	texts := map[string]*string{
		"request": &q.Request, "trace": &q.TraceID, "model": &q.Model, "status": &q.Status, "retained": &q.Retained, "param": &q.Param, "value": &q.Value,
	}
	numbers := map[string]*int64{"min_ns": &q.MinNs, "max_ns": &q.MaxNs, "from_us": &q.FromUs, "to_us": &q.ToUs}
	counts := map[string]*uint64{"cursor": &q.Cursor, "after": &q.After}
	for key, list := range v {
		text := list[len(list)-1]
		var err error
		switch {
		case texts[key] != nil:
			*texts[key] = text
		case text == "":
		case numbers[key] != nil:
			*numbers[key], err = strconv.ParseInt(text, 10, 64)
		case counts[key] != nil:
			*counts[key], err = strconv.ParseUint(text, 10, 64)
		case key == "limit":
			q.Limit, err = strconv.Atoi(text)
		default:
			return nil, status.Errorf(status.InvalidArg, "unknown query parameter '%s'", key)
		}
		if err != nil {
			return nil, status.Errorf(status.InvalidArg, "query parameter '%s' is '%s', expected a whole number", key, text)
		}
	}
	return q, nil
}

// numbered returns an endpoint that calls f with the number in the path.
func numbered[P, T any](what string, f func(part P, id uint64) (T, error)) func(P, *http.Request) (any, error) {
	return func(part P, r *http.Request) (any, error) {
		id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
		if err != nil {
			return nil, status.Errorf(status.InvalidArg, "invalid %s '%s', expected a number", what, r.PathValue("id"))
		}
		return f(part, id)
	}
}

// decode reads the body, which may have no unknown fields. Fields that it omits keep their values.
func decode(r *http.Request, to any, what string) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return status.Errorf(status.InvalidArg, "invalid "+what+": %w", err)
	}
	return nil
}

func setSampling(store inspect.Inspector, r *http.Request) (any, error) {
	set := store.Sampling()
	if err := decode(r, &set, "sampling"); err != nil {
		return nil, err
	}
	err := store.SetSampling(set)
	return store.Sampling(), err
}

func startCapture(c inspect.Captures, r *http.Request) (any, error) {
	var rule inspect.CaptureRule
	if err := decode(r, &rule, "capture"); err != nil {
		return nil, err
	}
	return c.StartCapture(rule)
}

func stopCapture(c inspect.Captures, id uint64) (*inspect.CaptureView, error) {
	if err := c.StopCapture(id); err != nil {
		return nil, err
	}
	return c.FindCapture(id)
}

func tensorFile(c inspect.Captures, r *http.Request) (any, error) {
	text, ok := strings.CutSuffix(r.PathValue("file"), ".npy")
	n, err := strconv.Atoi(text)
	if err != nil || !ok {
		return nil, status.Errorf(status.NotFound, "there is no tensor '%s', expected N.npy", r.PathValue("file"))
	}
	write, err := c.NPY(r.PathValue("id"), n)
	return &file{"application/octet-stream", text + ".npy", write}, err
}

func captureFile(c inspect.Captures, r *http.Request) (any, error) {
	write, err := c.NPZ(r.PathValue("id"))
	return &file{"application/zip", r.PathValue("id") + ".npz", write}, err
}

func load(l infer.Lifecycle, r *http.Request) (any, error) {
	var with struct {
		Config string `json:"config"`
	}
	if err := decode(r, &with, "options of loading"); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return struct{}{}, l.Load(r.Context(), r.PathValue("model"), infer.LoadOptions{Config: with.Config})
}

func unload(l infer.Lifecycle, r *http.Request) (any, error) {
	return struct{}{}, l.Unload(r.Context(), r.PathValue("model"), false)
}
