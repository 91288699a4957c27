package admin

import (
	"net/http"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// Live responds 200 while the server is live.
func (s *Service) Live(w http.ResponseWriter, _ *http.Request, _ transport.Path) {
	s.health(w, s.set.Live())
}

// Ready responds 200 while the server is live and every model that should be ready is.
func (s *Service) Ready(w http.ResponseWriter, _ *http.Request, _ transport.Path) {
	s.health(w, s.set.Live() && s.set.Catalog.Ready())
}

func (s *Service) health(w http.ResponseWriter, ok bool) {
	switch {
	case s.set.Exiting():
		transport.WriteErrorText(w, http.StatusServiceUnavailable, "Server exiting")
	case ok:
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(http.StatusBadRequest)
	}
}

// ServerMetadata responds with the server's name, version and extensions.
func (s *Service) ServerMetadata(http.ResponseWriter, *http.Request, transport.Path) (any, error) {
	return struct {
		Name       string   `json:"name"`
		Version    string   `json:"version"`
		Extensions []string `json:"extensions"`
	}{s.set.Name, s.set.Version, list(s.set.Extensions)}, nil
}

// ModelReady responds 200 for a model that is ready and 400 for any other.
func (s *Service) ModelReady(w http.ResponseWriter, _ *http.Request, p transport.Path) {
	version, err := infer.ParseVersion(p.Version)
	if err != nil {
		transport.WriteError(w, err)
		return
	}
	if err := s.set.Catalog.ModelReady(p.Model, version); err != nil {
		transport.WriteErrorText(w, http.StatusBadRequest, "Model version not ready: "+status.Text(err))
		return
	}
	w.WriteHeader(http.StatusOK)
}

// ModelMetadata responds with a model's inputs and outputs.
func (s *Service) ModelMetadata(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
	version, err := infer.ParseVersion(p.Version)
	if err != nil {
		return nil, err
	}
	m, err := s.set.Catalog.Metadata(p.Model, version)
	if err != nil {
		return nil, err
	}
	shown := *m
	shown.Versions, shown.Inputs, shown.Outputs = list(m.Versions), withShapes(m.Inputs), withShapes(m.Outputs)
	return shown, nil
}

// withShapes returns a copy of tensors whose shapes are lists in JSON, not null.
func withShapes(tensors []infer.TensorMetadata) []infer.TensorMetadata {
	shown := append([]infer.TensorMetadata{}, tensors...)
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
	cfg, err := s.set.Catalog.Config(p.Model, version)
	if err != nil && status.CodeOf(err) == status.InvalidArg {
		transport.WriteErrorText(w, http.StatusNotFound, err.Error())
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
	Name           string               `json:"name"`
	Version        string               `json:"version"`
	LastInference  uint64               `json:"last_inference"`
	InferenceCount uint64               `json:"inference_count"`
	ExecutionCount uint64               `json:"execution_count"`
	Inference      infer.InferenceStats `json:"inference_stats"`
	// Response has members for decoupled models only.
	Response map[string]struct{} `json:"response_stats"`
	Batches  []infer.BatchStats  `json:"batch_stats"`
	Memory   []struct{}          `json:"memory_usage"`
}

// Statistics responds with the statistics of one version, of all versions of a model, or of all models.
func (s *Service) Statistics(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
	version, err := infer.ParseVersion(p.Version)
	if err != nil {
		return nil, err
	}
	all, err := s.set.Catalog.Statistics(p.Model, version)
	if err != nil {
		return nil, err
	}
	shown := make([]modelStats, len(all))
	for i := range all {
		m := &all[i]
		shown[i] = modelStats{
			Name: m.Name, Version: m.Version,
			LastInference: m.LastInference, InferenceCount: m.InferenceCount, ExecutionCount: m.ExecutionCount,
			Inference: m.Inference, Response: map[string]struct{}{}, Batches: list(m.Batches), Memory: []struct{}{},
		}
	}
	return struct {
		Models []modelStats `json:"model_stats"`
	}{shown}, nil
}
