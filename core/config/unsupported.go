package config

import (
	"slices"

	"tutti/core/status"
	"tutti/proto/modelconfig"
)

// unsupportedFields lists every field that would change an answer or a promise and
// is not honoured: setting one is refused. Fields that only hint at speed (graph
// level, CUDA graphs, pinned memory, eager batching, rate limits, host policies,
// file names by compute capability) are accepted without effect.
var unsupportedFields = []struct {
	field string
	used  func(*modelconfig.ModelConfig) bool
}{
	{"sequence_batching", func(c *modelconfig.ModelConfig) bool { return c.GetSequenceBatching() != nil }},
	{"response_cache", func(c *modelconfig.ModelConfig) bool { return c.GetResponseCache().GetEnable() }},
	{"model_warmup", func(c *modelconfig.ModelConfig) bool { return len(c.GetModelWarmup()) > 0 }},
	{"model_repository_agents", func(c *modelconfig.ModelConfig) bool { return len(c.GetModelRepositoryAgents().GetAgents()) > 0 }},
	{"model_operations", func(c *modelconfig.ModelConfig) bool { return len(c.GetModelOperations().GetOpLibraryFilename()) > 0 }},
	{"model_metrics", func(c *modelconfig.ModelConfig) bool { return len(c.GetModelMetrics().GetMetricControl()) > 0 }},
	{"metric_tags", func(c *modelconfig.ModelConfig) bool { return len(c.GetMetricTags()) > 0 }},
	{"runtime", func(c *modelconfig.ModelConfig) bool { return c.GetRuntime() != "" }},
	{"dynamic_batching.preserve_ordering", func(c *modelconfig.ModelConfig) bool { return c.GetDynamicBatching().GetPreserveOrdering() }},
	{"dynamic_batching.priority_levels", func(c *modelconfig.ModelConfig) bool { return c.GetDynamicBatching().GetPriorityLevels() > 0 }},
	{"dynamic_batching.default_priority_level", func(c *modelconfig.ModelConfig) bool {
		return c.GetDynamicBatching().GetDefaultPriorityLevel() > 0
	}},
	{"dynamic_batching.default_queue_policy", func(c *modelconfig.ModelConfig) bool {
		return limitsQueue(c.GetDynamicBatching().GetDefaultQueuePolicy())
	}},
	{"dynamic_batching.priority_queue_policy", func(c *modelconfig.ModelConfig) bool {
		return len(c.GetDynamicBatching().GetPriorityQueuePolicy()) > 0
	}},
	{"batch_input", func(c *modelconfig.ModelConfig) bool { return len(c.GetBatchInput()) > 0 }},
	{"batch_output", func(c *modelconfig.ModelConfig) bool { return len(c.GetBatchOutput()) > 0 }},
	{"input.reshape", anyInput(func(in *modelconfig.ModelInput) bool { return in.GetReshape() != nil })},
	{"input.allow_ragged_batch", anyInput((*modelconfig.ModelInput).GetAllowRaggedBatch)},
	{"input.is_non_linear_format_io", anyInput((*modelconfig.ModelInput).GetIsNonLinearFormatIo)},
	{"output.reshape", anyOutput(func(out *modelconfig.ModelOutput) bool { return out.GetReshape() != nil })},
	{"output.is_non_linear_format_io", anyOutput((*modelconfig.ModelOutput).GetIsNonLinearFormatIo)},
	{"instance_group.kind: KIND_GPU", anyGroup(func(g *modelconfig.ModelInstanceGroup) bool {
		return g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU
	})},
	{"instance_group.passive", anyGroup((*modelconfig.ModelInstanceGroup).GetPassive)},
	{"instance_group.profile", anyGroup(func(g *modelconfig.ModelInstanceGroup) bool { return len(g.GetProfile()) > 0 })},
	{"instance_group.secondary_devices", anyGroup(func(g *modelconfig.ModelInstanceGroup) bool {
		return len(g.GetSecondaryDevices()) > 0
	})},
	{"optimization.execution_accelerators", func(c *modelconfig.ModelConfig) bool {
		a := c.GetOptimization().GetExecutionAccelerators()
		return len(a.GetCpuExecutionAccelerator())+len(a.GetGpuExecutionAccelerator()) > 0
	}},
	{"ensemble_scheduling.max_inflight_requests", func(c *modelconfig.ModelConfig) bool {
		return c.GetEnsembleScheduling().GetMaxInflightRequests() > 0
	}},
	{"ensemble_scheduling.step.model_namespace", func(c *modelconfig.ModelConfig) bool {
		return slices.ContainsFunc(c.GetEnsembleScheduling().GetStep(),
			func(s *modelconfig.ModelEnsembling_Step) bool { return s.GetModelNamespace() != "" })
	}},
}

func anyInput(used func(*modelconfig.ModelInput) bool) func(*modelconfig.ModelConfig) bool {
	return func(c *modelconfig.ModelConfig) bool { return slices.ContainsFunc(c.GetInput(), used) }
}

func anyOutput(used func(*modelconfig.ModelOutput) bool) func(*modelconfig.ModelConfig) bool {
	return func(c *modelconfig.ModelConfig) bool { return slices.ContainsFunc(c.GetOutput(), used) }
}

func anyGroup(used func(*modelconfig.ModelInstanceGroup) bool) func(*modelconfig.ModelConfig) bool {
	return func(c *modelconfig.ModelConfig) bool { return slices.ContainsFunc(c.GetInstanceGroup(), used) }
}

// limitsQueue reports whether a policy says anything but the default, which is to
// keep every request for as long as it takes.
func limitsQueue(p *modelconfig.ModelQueuePolicy) bool {
	return p.GetTimeoutAction() != modelconfig.ModelQueuePolicy_REJECT || p.GetDefaultTimeoutMicroseconds() > 0 ||
		p.GetAllowTimeoutOverride() || p.GetMaxQueueSize() > 0
}

func (l *problems) unsupported() {
	for _, u := range unsupportedFields {
		if u.used(l.cfg) {
			l.list = append(l.list, status.Errorf(status.Unsupported,
				"model '%s' sets '%s', which this server does not support", l.cfg.GetName(), u.field))
		}
	}
}
