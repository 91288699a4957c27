package benchmark

import (
	"context"

	"github.com/tutti-server/tutti/core/infer"
)

// Step has what a model of the server did during a measurement, by the server's statistics. Times are the mean of a request
// to the model, in microseconds.
type Step struct {
	Model    string  `json:"model"`
	Version  string  `json:"version"`
	Requests uint64  `json:"requests"`
	Failed   uint64  `json:"failed"`
	Total    float64 `json:"total_us"`
	Queue    float64 `json:"queue_us"`
	Input    float64 `json:"compute_input_us"`
	Infer    float64 `json:"compute_infer_us"`
	Output   float64 `json:"compute_output_us"`
	Batch    float64 `json:"batch_size"` // the mean number of rows of an execution
	// Executions counts the batches.
	Executions uint64 `json:"executions"`
	// Hits counts the responses from the cache.
	Hits uint64 `json:"cache_hits,omitempty"`
}

// Compute is the time of a request in the model: input, inference and output.
func (s *Step) Compute() float64 { return s.Input + s.Infer + s.Output }

// Steps returns the difference between two readings of the statistics, in the order of the later one, without models that had
// no requests.
func Steps(before, after []infer.Statistics) []Step {
	old := map[[2]string]*infer.Statistics{}
	for i := range before {
		old[[2]string{before[i].Name, before[i].Version}] = &before[i]
	}
	var list []Step
	for i := range after {
		now := &after[i]
		was := old[[2]string{now.Name, now.Version}]
		if was == nil || now.Inference.Success.Count < was.Inference.Success.Count {
			was = &infer.Statistics{} // it was loaded meanwhile
		}
		if s := step(now, was); s.Requests+s.Failed > 0 {
			list = append(list, s)
		}
	}
	return list
}

func step(now, was *infer.Statistics) Step {
	a, b := &now.Inference, &was.Inference
	s := Step{
		Model: now.Name, Version: now.Version, Requests: a.Success.Count - b.Success.Count, Failed: a.Fail.Count - b.Fail.Count,
		Executions: now.ExecutionCount - was.ExecutionCount, Hits: a.CacheHit.Count - b.CacheHit.Count,
	}
	if rows := now.InferenceCount - was.InferenceCount; s.Executions > 0 {
		s.Batch = float64(rows) / float64(s.Executions)
	}
	if s.Requests == 0 {
		return s
	}
	mean := func(now, was infer.Duration) float64 { return float64(now.Ns-was.Ns) / 1e3 / float64(s.Requests) }
	s.Total, s.Queue = mean(a.Success, b.Success), mean(a.Queue, b.Queue)
	s.Input, s.Infer, s.Output = mean(a.ComputeInput, b.ComputeInput), mean(a.ComputeInfer, b.ComputeInfer), mean(a.ComputeOutput, b.ComputeOutput)
	return s
}

// StatisticsOf returns a function for Plan.Statistics, of a client of the server. For example, client.HTTP is one.
func StatisticsOf(c interface {
	Statistics(ctx context.Context, model string) ([]infer.Statistics, error)
},
) func(ctx context.Context) ([]infer.Statistics, error) {
	return func(ctx context.Context) ([]infer.Statistics, error) { return c.Statistics(ctx, "") }
}
