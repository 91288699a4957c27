package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

func (l *problems) batching() {
	name, limit := l.cfg.GetName(), l.cfg.GetMaxBatchSize()
	l.addIf(limit < 0, BadMaxBatch, "max_batch_size", "'max_batch_size' must be non-negative value for %s", name)
	d := l.cfg.GetDynamicBatching()
	for _, size := range d.GetPreferredBatchSize() {
		const field = "dynamic_batching.preferred_batch_size"
		l.addIf(size <= 0, PreferredSize, field, "dynamic batching preferred size must be positive for %s", name)
		l.addIf(size > limit, PreferredSize, field, "dynamic batching preferred size must be <= max batch size for %s", name)
	}
	levels, def := d.GetPriorityLevels(), d.GetDefaultPriorityLevel()
	l.addIf(levels > 0 && (def == 0 || def > levels), Priorities, "dynamic_batching.default_priority_level",
		"default priority level must be in range [1, %d] for %s", levels, name)
	l.priorityPolicies(d)
	l.queuePolicy("dynamic_batching.default_queue_policy", d.GetDefaultQueuePolicy())
	for _, level := range slices.Sorted(maps.Keys(d.GetPriorityQueuePolicy())) {
		l.queuePolicy("dynamic_batching.priority_queue_policy", d.GetPriorityQueuePolicy()[level])
	}
	if d.GetPreserveOrdering() {
		l.preserveOrdering(d)
	}
}

// priorityPolicies checks that each policy belongs to an existing priority level.
func (l *problems) priorityPolicies(d *modelconfig.ModelDynamicBatching) {
	const field = "dynamic_batching.priority_queue_policy"
	name, levels := l.cfg.GetName(), d.GetPriorityLevels()
	if levels == 0 && len(d.GetPriorityQueuePolicy()) > 0 {
		l.add(Hint, field, "model '%s' sets '%s', which has no effect here: there are no priority_levels", name, field)
		return
	}
	given := slices.Collect(maps.Keys(d.GetPriorityQueuePolicy()))
	l.addIf(slices.ContainsFunc(given, func(level uint64) bool { return level == 0 || level > levels }), Priorities, field,
		"priority queue policy must have priority level in range [1, %d] for %s", levels, name)
}

// queuePolicy rejects numbers that are not an action. Protobuf accepts any number for an enum.
func (l *problems) queuePolicy(field string, p *modelconfig.ModelQueuePolicy) {
	a := p.GetTimeoutAction()
	l.addIf(modelconfig.ModelQueuePolicy_TimeoutAction_name[int32(a)] == "", QueuePolicy, field+".timeout_action",
		"model '%s' has timeout_action %d, expected REJECT or DELAY", l.cfg.GetName(), a)
}

func (l *problems) preserveOrdering(d *modelconfig.ModelDynamicBatching) {
	const field = "dynamic_batching.preserve_ordering"
	l.addIf(d.GetPriorityLevels() > 1, Ordering, field, "Only one priority level is allowed when 'preserve_ordering' is true for %s", l.cfg.GetName())
	delays := d.GetDefaultQueuePolicy().GetTimeoutAction() == modelconfig.ModelQueuePolicy_DELAY
	for _, p := range d.GetPriorityQueuePolicy() {
		delays = delays || p.GetTimeoutAction() == modelconfig.ModelQueuePolicy_DELAY
	}
	l.addIf(delays, Ordering, field, "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for %s", l.cfg.GetName())
}

func (l *problems) sequence() {
	s := l.cfg.GetSequenceBatching()
	if s == nil {
		return
	}
	name, u := l.cfg.GetName(), s.GetDirect().GetMinimumSlotUtilization()
	l.addIf(!(u >= 0 && u <= 1), Sequence, "sequence_batching.direct.minimum_slot_utilization",
		"sequence batching minimum slot utilization must be in range (0.0, 1.0] for %s", name)
	for _, size := range s.GetOldest().GetPreferredBatchSize() {
		const field = "sequence_batching.oldest.preferred_batch_size"
		l.addIf(size <= 0, Sequence, field, "sequence batching preferred batch size must be positive for %s", name)
		l.addIf(size > max(1, l.cfg.GetMaxBatchSize()), Sequence, field,
			"sequence batching preferred batch size must be <= max batch size for %s", name)
	}
	seen := map[modelconfig.ModelSequenceBatching_Control_Kind]bool{}
	for i, in := range s.GetControlInput() {
		field := fmt.Sprintf("sequence_batching.control_input[%d]", i)
		l.addIf(in.GetName() == "", Sequence, field, "sequence batching control tensor must have a name for %s", name)
		for j, c := range in.GetControl() {
			l.addIf(seen[c.GetKind()], Sequence, field, "sequence batching specifies multiple %s tensors for %s", c.GetKind(), name)
			seen[c.GetKind()] = true
			l.control(fmt.Sprintf("%s.control[%d]", field, j), c)
		}
	}
	l.states(s)
	l.sequenceNames(s)
}

// sequenceNames rejects a tensor with two purposes.
func (l *problems) sequenceNames(s *modelconfig.ModelSequenceBatching) {
	seen := map[string]bool{}
	for i, in := range s.GetControlInput() {
		field := fmt.Sprintf("sequence_batching.control_input[%d]", i)
		n := len(in.GetControl())
		l.addIf(n != 1, Sequence, field, "sequence batching control tensor '%s' must have one control for %s, found %d", in.GetName(), l.cfg.GetName(), n)
		l.addIf(in.GetName() != "" && seen[in.GetName()], Sequence, field,
			"sequence batching control tensor '%s' is specified for multiple control kinds for %s", in.GetName(), l.cfg.GetName())
		seen[in.GetName()] = true
	}
	for i, st := range s.GetState() {
		name := st.GetInputName()
		l.addIf(name != "" && seen[name], Sequence, fmt.Sprintf("sequence_batching.state[%d]", i),
			"state input '%s' is also a control tensor for %s", name, l.cfg.GetName())
	}
}

func (l *problems) states(s *modelconfig.ModelSequenceBatching) {
	inputs, outputs := map[string]bool{}, map[string]bool{}
	for i, st := range s.GetState() {
		field := fmt.Sprintf("sequence_batching.state[%d]", i)
		in, out := st.GetInputName(), st.GetOutputName()
		l.addIf(in != "" && inputs[in], Sequence, field, "State input name '%s' specified more than once.", in)
		l.addIf(out != "" && outputs[out], Sequence, field, "State output name '%s' specified more than once.", out)
		inputs[in], outputs[out] = true, true
		l.state(field, st)
	}
}

// control checks one sequence control: a boolean control has its false and true values in one type, and the type of
// a correlation id can hold it.
func (l *problems) control(field string, c *modelconfig.ModelSequenceBatching_Control) {
	name := l.cfg.GetName()
	given := 0
	for _, n := range []int{len(c.GetInt32FalseTrue()), len(c.GetFp32FalseTrue()), len(c.GetBoolFalseTrue())} {
		if n > 0 {
			given++
		}
		l.addIf(n > 0 && n != 2, Sequence, field,
			"sequence batching control must have 2 entries, false and true, for %s for %s, found %d", c.GetKind(), name, n)
	}
	if c.GetKind() == modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID {
		switch c.GetDataType() {
		case modelconfig.DataType_TYPE_UINT64, modelconfig.DataType_TYPE_INT64, modelconfig.DataType_TYPE_UINT32,
			modelconfig.DataType_TYPE_INT32, modelconfig.DataType_TYPE_STRING:
		default:
			l.add(Sequence, field, "unexpected data type for control CONTROL_SEQUENCE_CORRID for %s. "+
				"Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING", name)
		}
		return
	}
	l.addIf(given != 1, Sequence, field,
		"sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for %s for %s", c.GetKind(), name)
}

func (l *problems) state(field string, st *modelconfig.ModelSequenceBatching_State) {
	name, in := l.cfg.GetName(), st.GetInputName()
	l.addIf(in == "" || st.GetOutputName() == "", Sequence, field, "sequence batching state must specify 'input_name' and 'output_name' for %s", name)
	_, known := modelconfig.DataType_name[int32(st.GetDataType())]
	l.addIf(!known || st.GetDataType() == modelconfig.DataType_TYPE_INVALID, Sequence, field,
		"sequence batching state '%s' must specify 'data_type' for %s", in, name)
	l.addIf(slices.ContainsFunc(st.GetDims(), wrongDim) || len(st.GetDims()) == 0, Sequence, field,
		"sequence batching state '%s' must specify 'dims', each an integer >= 1, or -1 to indicate a variable-size dimension, for %s", in, name)
	n := len(st.GetInitialState())
	l.addIf(n > 1, Sequence, field, "initial_state field for state input '%s' must contain exactly one or zero element. Found '%d' elements.", in, n)
	for i, s := range st.GetInitialState() {
		l.initialState(fmt.Sprintf("%s.initial_state[%d]", field, i), st, s)
	}
}

func (l *problems) initialState(at string, st *modelconfig.ModelSequenceBatching_State, s *modelconfig.ModelSequenceBatching_InitialState) {
	in := st.GetInputName()
	l.addIf(s.GetName() == "", Sequence, at, "Field 'name' must be set when using initial_state for state input '%s'.", in)
	l.addIf(s.GetDataType() != st.GetDataType(), Sequence, at,
		"The data type used for 'initial_state' field of state '%s' does not match the state data type.", in)
	a, b := len(s.GetDims()), len(st.GetDims())
	l.addIf(a != b, Sequence, at, "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input '%s'. %d != %d", in, a, b)
	for i := 0; a == b && i < a; i++ {
		d, want := s.GetDims()[i], st.GetDims()[i]
		l.addIf(d > 0 && want > 0 && d != want, Sequence, at,
			"'initial_state' dimensions of state input '%s' of %s have %d at %d, expected %d", in, l.cfg.GetName(), d, i, want)
	}
	l.addIf(slices.ContainsFunc(s.GetDims(), func(d int64) bool { return d < 1 }), Sequence, at,
		"'initial_state' field for state input name '%s' contains variable dimensions.", in)
	if f := s.GetDataFile(); f != "" {
		l.localFile(at+".data_file", "initial state file", f)
	}
	l.addIf(s.GetStateData() == nil, Sequence, at, "sequence batching initial state must specify 'zero_data' or 'data_file' for %s", l.cfg.GetName())
}

// maxWarmupSize is the largest batch_size of a warm-up of a model that does not batch: the number of requests.
const maxWarmupSize = 1 << 16

func (l *problems) warmups() {
	for i, w := range l.cfg.GetModelWarmup() {
		field := fmt.Sprintf("model_warmup[%d]", i)
		limit, note := int64(l.cfg.GetMaxBatchSize()), ""
		if limit <= 0 {
			limit, note = maxWarmupSize, " for a model that does not batch"
		}
		l.addIf(int64(w.GetBatchSize()) > limit, Warmup, field+".batch_size", "warmup '%s' of model '%s' has batch_size %d, expected at most %d%s",
			w.GetName(), l.cfg.GetName(), w.GetBatchSize(), limit, note)
		for _, name := range sortedKeys(w.GetInputs()) {
			l.warmupInput(field+".inputs", name, w.GetInputs()[name])
		}
	}
}

func (l *problems) warmupInput(field, name string, in *modelconfig.ModelWarmup_Input) {
	l.addIf(slices.ContainsFunc(in.GetDims(), func(d int64) bool { return d < 1 }), Warmup, field,
		"warmup setting expects all variable-size dimensions are specified for input '%s'", name)
	l.addIf(in.GetDataType() == modelconfig.DataType_TYPE_INVALID, Warmup, field, "warmup setting expects a data type for input '%s'", name)
	l.addIf(in.GetInputDataType() == nil, Warmup, field,
		"warmup setting expects 'zero_data', 'random_data' or 'input_data_file' for input '%s'", name)
	if f := in.GetInputDataFile(); f != "" {
		l.localFile(field, "warmup file", f)
	}
}
