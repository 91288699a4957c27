package grpcapi

import (
	"context"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/proto/inference"
)

// ModelStatistics returns the statistics of one version, of a model's versions, or of all models if the request
// names none.
func (s *service) ModelStatistics(_ context.Context, req *inference.ModelStatisticsRequest) (*inference.ModelStatisticsResponse, error) {
	version, err := infer.ParseVersion(req.GetVersion())
	if err != nil {
		return nil, wireError(err)
	}
	list, err := s.set.Catalog.Statistics(req.GetName(), version)
	if err != nil {
		return nil, wireError(err)
	}
	resp := &inference.ModelStatisticsResponse{ModelStats: make([]*inference.ModelStatistics, len(list))}
	for i := range list {
		resp.ModelStats[i] = modelStatistics(&list[i])
	}
	return resp, nil
}

func modelStatistics(m *infer.Statistics) *inference.ModelStatistics {
	s := &inference.ModelStatistics{
		Name:           m.Name,
		Version:        m.Version,
		LastInference:  m.LastInference,
		InferenceCount: m.InferenceCount,
		ExecutionCount: m.ExecutionCount,
		InferenceStats: &inference.InferStatistics{
			Success:       duration(m.Inference.Success),
			Fail:          duration(m.Inference.Fail),
			Queue:         duration(m.Inference.Queue),
			ComputeInput:  duration(m.Inference.ComputeInput),
			ComputeInfer:  duration(m.Inference.ComputeInfer),
			ComputeOutput: duration(m.Inference.ComputeOutput),
			CacheHit:      duration(m.Inference.CacheHit),
			CacheMiss:     duration(m.Inference.CacheMiss),
		},
	}
	for _, b := range m.Batches {
		s.BatchStats = append(s.BatchStats, &inference.InferBatchStatistics{
			BatchSize:     b.BatchSize,
			ComputeInput:  duration(b.ComputeInput),
			ComputeInfer:  duration(b.ComputeInfer),
			ComputeOutput: duration(b.ComputeOutput),
		})
	}
	return s
}

func duration(d infer.Duration) *inference.StatisticDuration {
	return &inference.StatisticDuration{Count: d.Count, Ns: d.Ns}
}
