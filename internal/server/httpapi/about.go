package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// about is the server metadata.
type about struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

// Extensions lists what is served beyond the protocol's core, in Triton's order.
// That generate is served, Triton does not say either.
func Extensions() []string {
	return []string{
		"classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
		"model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters",
		"statistics", "trace", "logging",
	}
}

func (s *Server) serverMetadata(w http.ResponseWriter, _ *http.Request, _ target) {
	a := s.about
	a.Extensions = list(a.Extensions)
	writeJSON(w, a)
}

// live answers 200 while the server lives.
func (s *Server) live(w http.ResponseWriter, _ *http.Request, _ target) {
	s.health(w, s.isLive == nil || s.isLive())
}

// ready answers 200 while everything that should serve does.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request, _ target) {
	s.health(w, (s.isLive == nil || s.isLive()) && s.catalog.Ready())
}

func (s *Server) health(w http.ResponseWriter, ok bool) {
	switch {
	case s.exiting.Load():
		writeErrorText(w, http.StatusServiceUnavailable, "Server exiting")
	case ok:
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(http.StatusBadRequest)
	}
}

// modelReady answers 400 for a model that does not serve, whatever the reason.
func (s *Server) modelReady(w http.ResponseWriter, _ *http.Request, t target) {
	version, err := infer.ParseVersion(t.version)
	if err != nil {
		writeError(w, err)
		return
	}
	if err := s.catalog.ModelReady(t.model, version); err != nil {
		writeErrorText(w, http.StatusBadRequest, "Model version not ready: "+status.Text(err))
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) modelMetadata(w http.ResponseWriter, _ *http.Request, t target) {
	version, err := infer.ParseVersion(t.version)
	if err != nil {
		writeError(w, err)
		return
	}
	m, err := s.catalog.Metadata(t.model, version)
	if err != nil {
		writeError(w, err)
		return
	}
	shown := *m
	shown.Versions, shown.Inputs, shown.Outputs = list(m.Versions), shapes(m.Inputs), shapes(m.Outputs)
	writeJSON(w, shown)
}

// list returns s, or an empty list instead of none: JSON tells them apart.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func shapes(of []infer.TensorMetadata) []infer.TensorMetadata {
	shown := append([]infer.TensorMetadata{}, of...)
	for i := range shown {
		shown[i].Shape = list(shown[i].Shape)
	}
	return shown
}

// modelConfig answers 404 for an unknown model, as Triton does here and nowhere else.
func (s *Server) modelConfig(w http.ResponseWriter, _ *http.Request, t target) {
	version, err := infer.ParseVersion(t.version)
	if err != nil {
		writeError(w, err)
		return
	}
	cfg, err := s.catalog.Config(t.model, version)
	switch {
	case status.CodeOf(err) == status.InvalidArg && err != nil:
		writeErrorText(w, http.StatusNotFound, err.Error())
	case err != nil:
		writeError(w, err)
	default:
		writeConfig(w, cfg)
	}
}

func writeConfig(w http.ResponseWriter, cfg *modelconfig.ModelConfig) {
	body, err := config.JSON(cfg)
	if err != nil {
		writeError(w, err)
		return
	}
	writeBody(w, body)
}

// lacks says that the server was made without what an endpoint needs.
func lacks(what string) error {
	return status.Errorf(status.Unsupported, "the %s endpoint is not supported by this server", what)
}

// writeJSON answers with v, as compact JSON without HTML escapes.
func writeJSON(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		writeError(w, err)
		return
	}
	writeBody(w, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func writeBody(w http.ResponseWriter, b []byte) {
	w.Header()["Content-Type"] = jsonType
	// A client that is gone by now gets nothing.
	_, _ = w.Write(b)
}
