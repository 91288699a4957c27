package tune

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/table"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// threadsKey is the parameter of a backend for the threads within one execution, by the name of the backend.
func threadsKey(backend string) string {
	switch backend {
	case "onnxruntime":
		return "intra_op_thread_count"
	case "openvino":
		return "INFERENCE_NUM_THREADS"
	}
	return "" // others have none, or one for the whole process
}

// settingOf reads the settings of a completed configuration. cores is the number of processor cores, of which the
// instances of a model use an equal part by default.
func settingOf(cfg *modelconfig.ModelConfig, cores int) Setting {
	d := cfg.GetDynamicBatching()
	s := Setting{
		MaxBatch: cfg.GetMaxBatchSize(), Batching: d != nil, Preferred: slices.Clone(d.GetPreferredBatchSize()),
		Delay: time.Duration(min(d.GetMaxQueueDelayMicroseconds(), 1<<40)) * time.Microsecond, //nolint:gosec // bounded
	}
	if s.Delay == 0 && slices.Equal(s.Preferred, []int32{s.MaxBatch}) {
		s.Preferred = nil // the default of dynamic_batching
	}
	for _, g := range cfg.GetInstanceGroup() {
		if !g.GetPassive() {
			s.Instances += int(g.GetCount())
		}
	}
	s.Instances = max(s.Instances, 1)
	if key := threadsKey(cfg.GetBackend()); key != "" {
		s.Threads = max(1, cores/s.Instances)
		if n, err := strconv.Atoi(cfg.GetParameters()[key].GetStringValue()); err == nil && n > 0 {
			s.Threads = n
		}
	}
	return s
}

// apply returns a copy of a configuration with the settings. The copy has the fields that edits would leave in the text.
func (s *Setting) apply(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	cfg = proto.CloneOf(cfg)
	cfg.MaxBatchSize = s.MaxBatch
	if s.Batching {
		d := cfg.GetDynamicBatching()
		if d == nil {
			d = &modelconfig.ModelDynamicBatching{}
			cfg.SchedulingChoice = &modelconfig.ModelConfig_DynamicBatching{DynamicBatching: d}
		}
		d.PreferredBatchSize = slices.Clone(s.Preferred)
		d.MaxQueueDelayMicroseconds = uint64(s.Delay.Microseconds()) //nolint:gosec // it is not negative
	}
	return cfg
}

// Edits returns the changes of config.pbtxt from one setting to another.
func Edits(cfg *modelconfig.ModelConfig, from, to *Setting) (list []config.Edit) {
	add := func(path, value string) { list = append(list, config.Edit{Path: path, Value: value}) }
	if from.Version != to.Version && to.Version.Number > 0 {
		add("version_policy", "{ specific { versions: [ "+strconv.FormatInt(to.Version.Number, 10)+" ] } }")
	}
	if from.MaxBatch != to.MaxBatch {
		add("max_batch_size", strconv.Itoa(int(to.MaxBatch)))
	}
	if from.Instances != to.Instances {
		add("instance_group[0].count", strconv.Itoa(to.Instances))
	}
	if !from.Batching && to.Batching && len(to.Preferred) == 0 && to.Delay == 0 {
		add("dynamic_batching", "{ }")
	}
	if !slices.Equal(from.Preferred, to.Preferred) {
		value := ""
		if len(to.Preferred) > 0 {
			value = "[ " + strings.Trim(strings.ReplaceAll(fmt.Sprint(to.Preferred), " ", ", "), "[]") + " ]"
		}
		add("dynamic_batching.preferred_batch_size", value)
	}
	if from.Delay != to.Delay {
		value := ""
		if to.Delay > 0 {
			value = strconv.FormatInt(to.Delay.Microseconds(), 10)
		}
		add("dynamic_batching.max_queue_delay_microseconds", value)
	}
	key := threadsKey(cfg.GetBackend())
	written := cfg.GetParameters()[key].GetStringValue()
	if key != "" && (from.Threads != to.Threads || from.Instances != to.Instances) && written != strconv.Itoa(to.Threads) {
		add("parameters."+key, strconv.Itoa(to.Threads))
	}
	return list
}

// String describes a setting. For example: "version 2 in int8, 2 instances with 1 thread, batches up to 32 after at most 2ms".
func (s *Setting) String() string {
	text := table.Count(s.Instances, "instance")
	if s.Version != (Version{}) {
		text = s.Version.String() + ", " + text
	}
	if s.Threads > 0 {
		text += " with " + table.Count(s.Threads, "thread")
	}
	switch {
	case !s.Batching:
		return text + ", no batches"
	case len(s.Preferred) > 0:
		text += ", batches of " + strings.Trim(fmt.Sprint(s.Preferred), "[]")
	default:
		text += fmt.Sprintf(", batches up to %d", s.MaxBatch)
	}
	if s.Delay > 0 {
		text += " after at most " + s.Delay.String()
	}
	return text
}
