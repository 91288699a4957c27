package config

import (
	"fmt"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// CompleteFlow completes an ensemble from the names in its steps and returns a notice for each addition. An empty
// list of inputs becomes the tensors that no step writes, an empty list of outputs those that no step reads, and a
// model_version of 0 becomes -1. Types, dims and max_batch_size follow from the steps' models (pipeline/plan).
// CompleteFlow is idempotent.
func CompleteFlow(cfg *modelconfig.ModelConfig) []Diagnostic {
	l := &problems{cfg: cfg}
	f := newFlow(cfg)
	for i, s := range f.steps {
		if s.GetModelVersion() == 0 && s.GetModelName() != "" {
			l.add(NoModelVersion, stepField(i), "step %d of ensemble '%s' does not specify 'model_version', so the latest version of model '%s' is taken",
				i, cfg.GetName(), s.GetModelName())
			s.ModelVersion = -1
		}
		for _, t := range s.GetInputMap() {
			f.readers[t] = append(f.readers[t], i)
		}
		for _, t := range s.GetOutputMap() {
			f.writer[t] = i
		}
	}
	if len(f.steps) > 0 {
		l.completePorts(f)
	}
	return l.list
}

func (l *problems) completePorts(f *flow) {
	cfg := l.cfg
	for i, in := range cfg.GetInput() {
		l.gapNotice(f, fmt.Sprintf("input[%d]", i), "input", in)
	}
	for i, out := range cfg.GetOutput() {
		l.gapNotice(f, fmt.Sprintf("output[%d]", i), "output", out)
	}
	if len(cfg.GetInput()) == 0 {
		for _, t := range sortedKeys(f.readers) {
			if _, written := f.writer[t]; !written {
				cfg.Input = append(cfg.Input, &modelconfig.ModelInput{Name: t})
				l.undeclared(stepField(f.readers[t][0])+".input_map", "input", t)
			}
		}
	}
	if len(cfg.GetOutput()) == 0 {
		for _, t := range sortedKeys(f.writer) {
			if len(f.readers[t]) == 0 {
				cfg.Output = append(cfg.Output, &modelconfig.ModelOutput{Name: t})
				l.undeclared(stepField(f.writer[t])+".output_map", "output", t)
			}
		}
	}
}

func (l *problems) undeclared(field, kind, tensor string) {
	l.add(InferredPort, field, "%s '%s' of ensemble '%s' is not declared and is taken from its steps", kind, tensor, l.cfg.GetName())
}

// gapNotice adds a notice for a declared port whose type or dims the steps provide.
func (l *problems) gapNotice(f *flow, field, kind string, p port) {
	_, written := f.writer[p.GetName()]
	used := written || len(f.readers[p.GetName()]) > 0
	if used && (p.GetDataType() == modelconfig.DataType_TYPE_INVALID || len(p.GetDims()) == 0) {
		l.add(InferredPort, field, "%s '%s' of ensemble '%s' has no data_type or dims, which are taken from its steps", kind, p.GetName(), l.cfg.GetName())
	}
}
