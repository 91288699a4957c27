package httpapi

import (
	"net/http"

	"github.com/tutti-server/tutti/core/infer"
)

// modelStats is one version's statistics in the protocol's order of members.
type modelStats struct {
	Name           string               `json:"name"`
	Version        string               `json:"version"`
	LastInference  uint64               `json:"last_inference"`
	InferenceCount uint64               `json:"inference_count"`
	ExecutionCount uint64               `json:"execution_count"`
	Inference      infer.InferenceStats `json:"inference_stats"`
	// Response is filled by decoupled models only.
	Response map[string]struct{} `json:"response_stats"`
	Batches  []infer.BatchStats  `json:"batch_stats"`
	Memory   []struct{}          `json:"memory_usage"`
}

// statistics answers with those of one version, of a model's versions, or of all models.
func (s *Server) statistics(w http.ResponseWriter, _ *http.Request, t target) {
	version, err := infer.ParseVersion(t.version)
	if err != nil {
		writeError(w, err)
		return
	}
	all, err := s.catalog.Statistics(t.model, version)
	if err != nil {
		writeError(w, err)
		return
	}
	shown := make([]modelStats, len(all))
	for i := range all {
		shown[i] = show(&all[i])
	}
	writeJSON(w, struct {
		Models []modelStats `json:"model_stats"`
	}{shown})
}

func show(m *infer.Statistics) modelStats {
	return modelStats{
		Name:           m.Name,
		Version:        m.Version,
		LastInference:  m.LastInference,
		InferenceCount: m.InferenceCount,
		ExecutionCount: m.ExecutionCount,
		Inference:      m.Inference,
		Response:       map[string]struct{}{},
		Batches:        list(m.Batches),
		Memory:         []struct{}{},
	}
}
