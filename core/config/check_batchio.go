package config

import (
	"fmt"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// batchTensors checks batch_input and batch_output: inputs computed from a whole batch, and outputs that are split
// over its requests.
func (l *problems) batchTensors() {
	b := &batchTensors{problems: l, inputs: map[string]bool{}, outputs: map[string]bool{}, targets: map[string]bool{}}
	for _, in := range l.cfg.GetInput() {
		b.inputs[in.GetName()] = true
	}
	for _, out := range l.cfg.GetOutput() {
		b.outputs[out.GetName()] = true
	}
	if IsEnsemble(l.cfg) && len(l.cfg.GetBatchInput())+len(l.cfg.GetBatchOutput()) > 0 {
		l.add(BatchTensor, "batch_input", "ensemble '%s' sets batch_input or batch_output, which belong to the model of a step", l.cfg.GetName())
		return
	}
	for i, in := range l.cfg.GetBatchInput() {
		b.input(fmt.Sprintf("batch_input[%d]", i), in)
	}
	for i, out := range l.cfg.GetBatchOutput() {
		b.output(fmt.Sprintf("batch_output[%d]", i), out)
	}
}

// batchTensors has the names that batch_input and batch_output may refer to.
type batchTensors struct {
	*problems
	inputs, outputs map[string]bool
	targets         map[string]bool // targets
}

func (b *batchTensors) input(field string, in *modelconfig.BatchInput) {
	if _, known := modelconfig.BatchInput_Kind_name[int32(in.GetKind())]; !known {
		b.add(BatchTensor, field, "unknown batch input kind '%d' for %s", in.GetKind(), b.cfg.GetName())
		return
	}
	if n := len(in.GetSourceInput()); n != 1 {
		b.add(BatchTensor, field, "batch input kind '%s' expects 1 source input, got %d for %s", in.GetKind(), n, b.cfg.GetName())
	}
	if d := in.GetDataType(); d != modelconfig.DataType_TYPE_INT32 && d != modelconfig.DataType_TYPE_FP32 {
		b.add(BatchTensor, field, "batch input data type must be TYPE_INT32 or TYPE_FP32 for %s", b.cfg.GetName())
	}
	b.sources(field, in.GetSourceInput())
	if len(in.GetTargetName()) == 0 {
		b.add(BatchTensor, field, "batch input must specify 'target_name' for %s", b.cfg.GetName())
	}
	for _, name := range in.GetTargetName() {
		if b.inputs[name] || b.targets[name] {
			b.add(BatchTensor, field, "batch input target '%s' of %s is an input already", name, b.cfg.GetName())
		}
		b.targets[name] = true
	}
}

func (b *batchTensors) output(field string, out *modelconfig.BatchOutput) {
	if _, known := modelconfig.BatchOutput_Kind_name[int32(out.GetKind())]; !known {
		b.add(BatchTensor, field, "unknown batch output kind '%d' for %s", out.GetKind(), b.cfg.GetName())
		return
	}
	if n := len(out.GetSourceInput()); n != 1 {
		b.add(BatchTensor, field, "batch output kind '%s' expects 1 source input, got %d for %s", out.GetKind(), n, b.cfg.GetName())
	}
	b.sources(field, out.GetSourceInput())
	if len(out.GetTargetName()) == 0 {
		b.add(BatchTensor, field, "batch output must specify 'target_name' for %s", b.cfg.GetName())
	}
	once := "output:"
	for _, name := range out.GetTargetName() {
		if !b.outputs[name] {
			b.add(BatchTensor, field, "unknown target output name '%s' for %s", name, b.cfg.GetName())
		}
		if b.targets[once+name] {
			b.add(BatchTensor, field, "target output name '%s' can only be specified once for %s", name, b.cfg.GetName())
		}
		b.targets[once+name] = true
	}
}

// sources checks that each source is an input. The model may still provide inputs that the configuration does not
// list.
func (b *batchTensors) sources(field string, names []string) {
	for _, name := range names {
		if len(b.inputs) > 0 && !b.inputs[name] {
			b.add(BatchTensor, field, "unknown source input name '%s' for %s", name, b.cfg.GetName())
		}
	}
}
