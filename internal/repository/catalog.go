package repository

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/steps"
)

var _ infer.Catalog = (*Repository)(nil)

// Ready reports whether every model that should serve is loaded and, where it has a readiness check of its own,
// ready. Unloaded models, and ensembles that use them, do not count.
func (r *Repository) Ready() bool {
	if r.openErr != nil || slices.ContainsFunc(r.source.buckets, (*bucketRoot).neverListed) {
		return false
	}
	models := slices.Collect(maps.Values(r.catalog.Load().models))
	return !slices.ContainsFunc(models, func(m *model) bool { return !m.ready() }) && !slices.ContainsFunc(models, func(m *model) bool {
		return slices.ContainsFunc(m.versions, func(v *version) bool { return r.readiness(v) != nil })
	})
}

// ModelReady returns nil if the version serves, else the reason.
func (r *Repository) ModelReady(name string, number int64) error {
	v, err := r.find(name, number)
	if err != nil {
		return err
	}
	return r.readiness(v)
}

// readiness asks the model of a loaded version whether it is ready. It returns nil or the reason.
func (r *Repository) readiness(v *version) error {
	m, ok := v.model.(backends.ReadinessChecker)
	if !ok {
		return nil
	}
	err := m.Ready()
	if err != nil {
		//nolint:sloglint // the line is Triton's, which people look for
		r.s.Log.Debug(fmt.Sprintf("Model '%s' version %d is not ready: %s", v.sig.Model, v.sig.Version, status.Text(err)))
	}
	return err
}

// Describe returns the description of a version.
//
// hot: one map lookup.
func (r *Repository) Describe(name string, number int64) (*infer.Description, error) {
	v, err := r.find(name, number)
	if err != nil {
		return nil, err
	}
	return v.description, nil
}

func newDescription(sig *config.Signature) *infer.Description {
	return &infer.Description{
		Model: sig.Model, Version: sig.Version, MaxBatch: sig.MaxBatch, Decoupled: sig.Decoupled,
		Inputs: ports(sig.Inputs, sig.MaxBatch), Outputs: ports(sig.Outputs, sig.MaxBatch),
	}
}

func ports(list []config.Port, maxBatch int) []infer.Port {
	out := make([]infer.Port, len(list))
	for i := range list {
		p := &list[i]
		out[i] = infer.Port{Name: p.Name, DType: p.DType, Shape: p.FullDims(maxBatch), Optional: p.Optional, Labels: p.Labels}
	}
	return out
}

// Metadata returns a model's metadata: versions, platform, inputs and outputs.
func (r *Repository) Metadata(name string, number int64) (*infer.Metadata, error) {
	s := r.catalog.Load()
	v, err := s.find(name, number)
	if err != nil {
		return nil, err
	}
	md := &infer.Metadata{
		Name: name, Platform: v.cfg.GetPlatform(), Versions: []string{},
		Inputs: describe(v.sig.Inputs, v.sig.MaxBatch), Outputs: describe(v.sig.Outputs, v.sig.MaxBatch),
	}
	if md.Platform == "" {
		md.Platform = v.cfg.GetBackend()
	}
	for _, other := range s.called[name].versions {
		md.Versions = append(md.Versions, strconv.FormatInt(other.sig.Version, 10))
	}
	return md, nil
}

func describe(ports []config.Port, maxBatch int) []infer.TensorMetadata {
	list := make([]infer.TensorMetadata, len(ports))
	for i := range ports {
		shape := ports[i].FullDims(maxBatch)
		list[i] = infer.TensorMetadata{
			Name: ports[i].Name, Datatype: ports[i].DType.String(),
			Shape: append([]int64{}, shape.Dims()...),
		}
	}
	return list
}

// Config returns the completed configuration of a version.
func (r *Repository) Config(name string, number int64) (*modelconfig.ModelConfig, error) {
	v, err := r.find(name, number)
	if err != nil {
		return nil, err
	}
	if cfg := v.shownConfig.Load(); cfg != nil {
		return cfg, nil
	}
	return v.cfg, nil // an ensemble's
}

// Plan returns the compiled plan of a version.
func (r *Repository) Plan(name string, number int64) (*plan.Plan, error) {
	v, err := r.find(name, number)
	if err != nil {
		return nil, err
	}
	return v.exec.Plan(), nil
}

// Stage returns the text of an ensemble after a pass of the compiler. For example, after "types".
func (r *Repository) Stage(name, after string) (string, error) {
	s := r.catalog.Load()
	m := s.called[name]
	if m == nil || m.folder.cfg == nil || !m.ensemble() {
		return "", status.Errorf(status.InvalidArg, "model '%s' is no ensemble that can be read", name)
	}
	return plan.Stages(m.folder.cfg, lookup{source: &r.source, models: s.models, home: m.key}, after)
}

// Kind returns one word for a model: the step of a native model, else the backend.
func (r *Repository) Kind(name string) string {
	m := r.catalog.Load().called[name]
	if m == nil {
		return ""
	}
	if step := m.folder.cfg.GetParameters()[steps.Key].GetStringValue(); step != "" {
		return step
	}
	return m.folder.cfg.GetBackend()
}

// Statistics returns the statistics of one version, of all versions of a model, or of all models.
func (r *Repository) Statistics(name string, number int64) ([]infer.Statistics, error) {
	s := r.catalog.Load()
	keys := s.keys
	if name != "" {
		m := s.called[name]
		switch {
		case m != nil && m.sharedBy > 0:
			return nil, m.ambiguous()
		case m == nil || len(m.versions) == 0:
			return nil, status.Errorf(status.InvalidArg, "requested model '%s' is not available", name)
		case number > 0 && m.version(number) == nil:
			return nil, status.Errorf(status.InvalidArg, "requested model version is not available for model '%s'", name)
		}
		keys = []string{m.key}
	}
	list := []infer.Statistics{}
	for _, key := range keys {
		for _, v := range s.models[key].versions {
			if number <= 0 || v.sig.Version == number {
				list = append(list, statistics(v.stats))
			}
		}
	}
	return list, nil
}

func statistics(m *telemetry.Model) infer.Statistics {
	all := m.Requests()
	n, computed := m.Responses(), all.Count
	s := infer.Statistics{
		Name: m.Name, Version: strconv.FormatInt(m.Version, 10),
		LastInference: m.LastInference(), InferenceCount: m.Rows(), ExecutionCount: m.Executions(),
		Inference: infer.InferenceStats{
			Success:       infer.Duration{Count: n, Ns: m.TotalNs()},
			Queue:         infer.Duration{Count: n, Ns: m.QueueNs()},
			ComputeInput:  infer.Duration{Count: computed, Ns: all.InputNs},
			ComputeInfer:  infer.Duration{Count: computed, Ns: all.InferNs},
			ComputeOutput: infer.Duration{Count: computed, Ns: all.OutputNs},
		},
		Batches: []infer.BatchStats{},
	}
	s.Inference.CacheHit.Count, s.Inference.CacheHit.Ns = m.Hits.Load()
	s.Inference.CacheMiss.Count, s.Inference.CacheMiss.Ns = m.Misses.Load()
	for i := range m.Failures {
		count, ns := m.Failures[i].Load()
		s.Inference.Fail.Count += count
		s.Inference.Fail.Ns += ns
	}
	m.Batches(func(rows int, t telemetry.Totals) bool {
		s.Batches = append(s.Batches, infer.BatchStats{
			BatchSize:     uint64(rows),
			ComputeInput:  infer.Duration{Count: t.Count, Ns: t.InputNs},
			ComputeInfer:  infer.Duration{Count: t.Count, Ns: t.InferNs},
			ComputeOutput: infer.Duration{Count: t.Count, Ns: t.OutputNs},
		})
		return true
	})
	return s
}
