// Package admin serves the endpoints of the HTTP API that describe a running server or change it.
//
//   - service.go: Service, and how requests are read and responses written; health, metadata, configurations, statistics
//   - control.go: index, load and unload of models, shared memory regions, trace and log settings
//   - routes.go: the state of an ensemble's splits, canaries and shadows
//   - jobs.go, openapi.json: durable jobs; the document also describes asynchronous requests and routes
//
// Most handlers return the value or error to respond with, which JSON writes. They use encoding/json: such requests are rare, and
// struct types fix the form of the responses.
package admin

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// Service serves administration requests. Its methods are handlers and safe for concurrent use.
type Service struct{ *transport.Shared }

// New returns a Service.
func New(s *transport.Shared) *Service { return &Service{s} }

// JSON returns a handler that writes what serve returns: an error, a value as JSON, or 200 without a body for nil.
func JSON(serve func(http.ResponseWriter, *http.Request, transport.Path) (any, error)) transport.Handler {
	return func(w http.ResponseWriter, r *http.Request, p transport.Path) {
		switch v, err := serve(w, r, p); {
		case err != nil:
			transport.WriteError(w, err)
		case v != nil:
			transport.WriteJSON(w, v)
		default:
			w.WriteHeader(http.StatusOK)
		}
	}
}

// list returns s, or an empty list for nil, which JSON would print as null.
func list[T any](s []T) []T { return append([]T{}, s...) }

// readMembers reads a body that is one JSON object and calls member with the name of each of its members; member must read or
// skip the value. With optional an empty body is valid and has no members.
func (s *Service) readMembers(w http.ResponseWriter, r *http.Request, optional bool, member func(p *jsonwire.Parser, name string) error) error {
	var in transport.Body
	var p jsonwire.Parser
	in.Begin(s.Shared)
	defer in.Release()
	err := transport.RequireIdentity(r)
	if err == nil {
		var doc []byte
		if doc, err = in.ReadDocument(w, r, &p, nil, optional); err == nil && len(doc) > 0 {
			err = p.Object(func(name []byte) error { return member(&p, string(name)) })
		}
	}
	if err != nil {
		s.Drain(w, r, err)
	}
	return err
}

// Health returns a handler that responds 200 while the server is live and, for ready, every model that should be ready is. The
// response has no body, as Triton's, unless a reason is known. With the query parameter verbose, the body of ready lists what is
// degraded. The headers say the reason of a server that is not live or not ready.
func (s *Service) Health(ready bool) transport.Handler {
	return func(w http.ResponseWriter, r *http.Request, _ transport.Path) {
		switch {
		case ready && r.URL.RawQuery != "" && r.URL.Query().Has("verbose"):
			s.details(w, identity.From(r.Context()))
		case s.Exiting.Load(), ready && s.Leaving.Load():
			transport.WriteErrorAs(w, http.StatusServiceUnavailable, errExiting)
		case s.Live() && (!ready || s.Catalog.Ready()):
			w.WriteHeader(http.StatusOK)
		case s.lost() != nil:
			transport.WriteErrorAs(w, http.StatusBadRequest, s.lost())
		default:
			transport.SetErrorHeader(w.Header(), errNotReady)
			w.WriteHeader(http.StatusBadRequest)
		}
	}
}

// The errors of health, of which the second has no text for clients.
var (
	errExiting  error = &status.Error{Code: status.Unavailable, Reason: status.Draining, RetryAfter: time.Second, Msg: "Server exiting"}
	errNotReady       = status.Reasonf(status.ServerNotReady, "not all models are ready")
)

// details responds with what is degraded, as far as a client may know: a role for some models shows these only, and no other parts of the
// server, whose reasons have folders and addresses.
func (s *Service) details(w http.ResponseWriter, who *identity.Identity) {
	shown := struct {
		Ready    bool                `json:"ready"`
		Reason   string              `json:"reason,omitempty"`
		Degraded []infer.Degradation `json:"degraded"`
	}{Ready: !s.Exiting.Load() && !s.Leaving.Load() && s.Live() && s.Catalog.Ready(), Degraded: []infer.Degradation{}}
	code := http.StatusOK
	switch {
	case s.Exiting.Load() || s.Leaving.Load():
		code, shown.Reason = http.StatusServiceUnavailable, "Server exiting"
	case !shown.Ready:
		code = http.StatusBadRequest
	}
	if c, ok := s.Catalog.(interface{ Degraded() []infer.Degradation }); ok {
		of := identity.GroupOf(infer.APIHealth)
		shown.Degraded = list(slices.DeleteFunc(c.Degraded(), func(d infer.Degradation) bool {
			return who != nil && (d.What == "model" && !who.Sees(of, d.Name) || d.What != "model" && who.MayAll(of) != nil)
		}))
	}
	w.Header()["Content-Type"] = transport.JSONType
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(shown) // a client that has left reads nothing
}

// lost returns why a model cannot serve whose devices are lost, if the catalog knows.
func (s *Service) lost() error {
	if c, ok := s.Catalog.(interface{ Lost() error }); ok {
		return c.Lost()
	}
	return nil
}

// query calls of with the model and version in the path.
func query[T any](p transport.Path, of func(model string, version int64) (T, error)) (v T, err error) {
	version, err := infer.ParseVersion(p.Version)
	if err == nil {
		v, err = of(p.Model, version)
	}
	return v, err
}

// ServerMetadata responds with the server's name, version and extensions.
func (s *Service) ServerMetadata(http.ResponseWriter, *http.Request, transport.Path) (any, error) {
	return struct {
		Name       string   `json:"name"`
		Version    string   `json:"version"`
		Extensions []string `json:"extensions"`
	}{s.Name, s.Version, list(s.Extensions)}, nil
}

// ModelReady responds 200 for a model that is ready and 400 for any other, with the reason if it is known and not ready.
func (s *Service) ModelReady(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
	return query[any](p, func(model string, version int64) (any, error) {
		if err := s.Catalog.ModelReady(model, version); err != nil {
			e := &status.Error{Code: status.InvalidArg, Msg: "Model version not ready: " + status.Text(err)}
			if d := status.DetailsOf(err); d.Own {
				e.Reason, e.RetryAfter = d.Reason, d.RetryAfter
			}
			return nil, e
		}
		return nil, nil
	})
}

// ModelMetadata responds with a model's inputs and outputs.
func (s *Service) ModelMetadata(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
	m, err := query(p, s.Catalog.Metadata)
	if err != nil {
		return nil, err
	}
	shown := *m
	shown.Versions, shown.Inputs, shown.Outputs = list(m.Versions), withShapes(m.Inputs), withShapes(m.Outputs)
	return shown, nil
}

// withShapes returns a copy of tensors whose shapes are lists in JSON, not null.
func withShapes(tensors []infer.TensorMetadata) []infer.TensorMetadata {
	shown := list(tensors)
	for i := range shown {
		shown[i].Shape = list(shown[i].Shape)
	}
	return shown
}

// ModelConfig responds with a model's configuration, and 404 for an unknown model, as only this endpoint of Triton does.
func (s *Service) ModelConfig(w http.ResponseWriter, _ *http.Request, p transport.Path) {
	version, err := infer.ParseVersion(p.Version)
	if err != nil {
		transport.WriteError(w, err)
		return
	}
	cfg, err := s.Catalog.Config(p.Model, version)
	if err != nil && status.CodeOf(err) == status.InvalidArg {
		transport.WriteErrorAs(w, http.StatusNotFound, status.Errorf(status.NotFound, "%s", err.Error()))
		return
	}
	var body []byte
	if err == nil {
		body, err = config.JSON(cfg)
	}
	if err != nil {
		transport.WriteError(w, err)
		return
	}
	transport.WriteBody(w, body)
}

// modelStats is the statistics of a model version, with the members in the protocol's order.
type modelStats struct {
	infer.Statistics
	// Response has members for decoupled models only.
	Response map[string]struct{} `json:"response_stats"`
	Batches  []infer.BatchStats  `json:"batch_stats"` // replaces the embedded one, which JSON would print before Response
	Memory   []struct{}          `json:"memory_usage"`
}

// Statistics responds with the statistics of one version, of all versions of a model, or of all models.
func (s *Service) Statistics(_ http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	all, err := query(p, s.Catalog.Statistics)
	if err != nil {
		return nil, err
	}
	if who := identity.From(r.Context()); who != nil {
		all = slices.DeleteFunc(slices.Clone(all), func(m infer.Statistics) bool { return !who.Sees(identity.GroupOf(infer.APIStatistics), m.Name) })
	}
	shown := make([]modelStats, len(all))
	for i := range all {
		shown[i] = modelStats{all[i], map[string]struct{}{}, list(all[i].Batches), []struct{}{}}
	}
	return struct {
		Models []modelStats `json:"model_stats"`
	}{shown}, nil
}
