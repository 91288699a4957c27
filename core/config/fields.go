package config

import (
	"cmp"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Class is the treatment of a field.
type Class string

// The classes.
const (
	// Honoured fields have the effect that Triton documents.
	Honoured Class = "honoured"
	// Hinted fields only affect speed. They are accepted with a notice.
	Hinted Class = "hint"
	// Refused fields would change results and are not implemented.
	Refused Class = "refused"
)

// Field is the treatment of one field and, unless a longer path overrides it, of all fields below.
type Field struct {
	Path  string // names the field from the outside in. For example, dynamic_batching.preferred_batch_size.
	Class Class
	Doc   string // describes the effect of the field, or the reason why it has none or is refused
	// Value selects the values that the class applies to; other values are honoured. Nil: all values. It is never
	// called with the value of a field below.
	Value func(protoreflect.Value) bool
	Only  string   // names those values. For example, KIND_GPU.
	By    []string // names the backends that honour the field in any case
}

// Fields returns the treatment of every field, in the order of the schema.
func Fields() []Field { return slices.Clone(fieldTable) }

// FieldOf returns the treatment of the field at a path. It reports false if there is none.
func FieldOf(path string) (Field, bool) {
	for ; path != ""; path = path[:max(0, strings.LastIndexByte(path, '.'))] {
		if i := slices.IndexFunc(fieldTable, func(f Field) bool { return f.Path == path }); i >= 0 {
			return fieldTable[i], true
		}
	}
	return Field{}, false
}

// eachField visits the fields of a message and all below, outer ones first.
func eachField(desc protoreflect.MessageDescriptor, visit func(protoreflect.FieldDescriptor)) {
	for i := range desc.Fields().Len() {
		fd := desc.Fields().Get(i)
		visit(fd)
		below := fd.Message()
		if fd.IsMap() {
			below = fd.MapValue().Message()
		}
		if below != nil {
			eachField(below, visit)
		}
	}
}

// fieldTable lists the treatment of each field. Change the row when you implement a field; docs/config.md is
// generated from it.
var fieldTable = []Field{
	{Path: "name", Class: Honoured, Doc: "The model's name. It must equal the name of the model's folder."},
	{Path: "platform", Class: Honoured, Doc: "The older way to name the backend, and `ensemble`. For example, onnxruntime_onnx."},
	{Path: "backend", Class: Honoured, Doc: "The backend that executes the model. For example, onnxruntime."},
	{Path: "runtime", Class: Honoured, Doc: "The backend's library. libtriton_BACKEND.so selects the library of that name where there is one, else the backend that is built in; any other name is refused."},
	{Path: "version_policy", Class: Honoured, Doc: "Which version folders are served. The latest one by default."},
	{Path: "version_policy.latest", Class: Honoured, Doc: "Serve the highest versions."},
	{Path: "version_policy.latest.num_versions", Class: Honoured, Doc: "How many of them; 1 by default."},
	{Path: "version_policy.all", Class: Honoured, Doc: "Serve every version."},
	{Path: "version_policy.specific", Class: Honoured, Doc: "Serve the listed versions."},
	{Path: "version_policy.specific.versions", Class: Honoured, Doc: "The version numbers."},
	{Path: "max_batch_size", Class: Honoured, Doc: "The largest batch, in rows. 0: the model has no batch dimension."},
	{Path: "input", Class: Honoured, Doc: "The model's inputs. They may be omitted if the model's file describes them."},
	{Path: "input.name", Class: Honoured, Doc: "The input's name."},
	{Path: "input.data_type", Class: Honoured, Doc: "The type of its elements."},
	{Path: "input.format", Class: Honoured, Doc: "The order of an image's dimensions. The input must have 3 dims."},
	{Path: "input.dims", Class: Honoured, Doc: "The dimensions without the batch dimension. -1 is variable."},
	{Path: "input.reshape", Class: Honoured, Doc: "The shape that the model (or the steps of the ensemble) sees instead of dims."},
	{Path: "input.reshape.shape", Class: Honoured, Doc: "The dimensions without the batch dimension: the same number of elements, and every -1 of dims in order."},
	{Path: "input.is_shape_tensor", Class: Honoured, Doc: "Marks a tensor of extents of a TensorRT plan. It has no batch dimension, is on the host, and only requests with equal values share a batch. Refused with Triton's error text for other backends."},
	{Path: "input.allow_ragged_batch", Class: Honoured, Doc: "Requests of different shapes share a batch. The model gets their elements concatenated in one dimension."},
	{Path: "input.optional", Class: Honoured, Doc: "A request may omit the input."},
	{Path: "input.is_non_linear_format_io", Class: Refused, Doc: "Only TensorRT has such formats, and plans with them are not supported."},
	{Path: "output", Class: Honoured, Doc: "The model's outputs. They may be omitted if the model's file describes them."},
	{Path: "output.name", Class: Honoured, Doc: "The output's name."},
	{Path: "output.data_type", Class: Honoured, Doc: "The type of its elements."},
	{Path: "output.dims", Class: Honoured, Doc: "The dimensions without the batch dimension. -1 is variable."},
	{Path: "output.reshape", Class: Honoured, Doc: "The shape that the model (or the steps of the ensemble) sees instead of dims."},
	{Path: "output.reshape.shape", Class: Honoured, Doc: "The dimensions without the batch dimension: the same number of elements, and every -1 of dims in order."},
	{Path: "output.label_filename", Class: Honoured, Doc: "A file in the model's folder with a class name on each line."},
	{Path: "output.is_shape_tensor", Class: Honoured, Doc: "Marks a tensor of extents of a TensorRT plan. It has no batch dimension, is on the host, and only requests with equal values share a batch. Refused with Triton's error text for other backends."},
	{Path: "output.is_non_linear_format_io", Class: Refused, Doc: "Only TensorRT has such formats, and plans with them are not supported."},
	{Path: "batch_input", Class: Honoured, Doc: "Inputs that requests do not send: the server computes them from the shapes in a batch."},
	{Path: "batch_input.kind", Class: Honoured, Doc: "The value: element counts, accumulated counts, the largest count as a shape, or the shape of each row."},
	{Path: "batch_input.target_name", Class: Honoured, Doc: "The model's inputs that receive the value."},
	{Path: "batch_input.data_type", Class: Honoured, Doc: "TYPE_INT32 or TYPE_FP32."},
	{Path: "batch_input.source_input", Class: Honoured, Doc: "The input whose shapes are measured. Exactly one."},
	{Path: "batch_output", Class: Honoured, Doc: "Outputs that are split between requests in proportion to an input."},
	{Path: "batch_output.target_name", Class: Honoured, Doc: "The names of the outputs."},
	{Path: "batch_output.kind", Class: Honoured, Doc: "BATCH_SCATTER_WITH_INPUT_SHAPE: a request gets as many elements as the output's dims hold when each -1 is replaced by the input's extent."},
	{Path: "batch_output.source_input", Class: Honoured, Doc: "The input whose shapes are used. Exactly one."},
	{Path: "optimization", Class: Honoured, Doc: "Settings that may make a model faster."},
	{Path: "optimization.graph", Class: Honoured, Doc: "The level of ONNX Runtime's graph optimizations."},
	{Path: "optimization.priority", Class: Hinted, By: []string{"tensorrt"}, Doc: "With PRIORITY_MAX the work of a TensorRT plan goes first on its GPU. Models of other backends share the processor evenly."},
	{Path: "optimization.cuda", Class: Hinted, Doc: "Executions are not captured in CUDA graphs."},
	{
		Path: "optimization.execution_accelerators", Class: Refused, Only: "not empty", By: []string{onnxRuntime},
		Doc:   "ONNX Runtime's execution providers, where its library has them: openvino, xnnpack, and for instances at GPUs tensorrt and cuda. Other backends have none. Without a GPU --gpu-fallback=cpu leaves those of GPUs out.",
		Value: func(v protoreflect.Value) bool { return proto.Size(v.Message().Interface()) > 0 },
	},
	{Path: "optimization.input_pinned_memory", Class: Hinted, Doc: "Copies to devices take pinned memory as far as --pinned-memory-pool-byte-size reaches."},
	{Path: "optimization.output_pinned_memory", Class: Hinted, Doc: "Copies from devices take pinned memory as far as --pinned-memory-pool-byte-size reaches."},
	{Path: "optimization.gather_kernel_buffer_threshold", Class: Hinted, Doc: "Rows of several requests are joined on the processor, or at a device by one kernel."},
	{Path: "optimization.eager_batching", Class: Hinted, Doc: "A batch is gathered when an instance is free."},
	{Path: "dynamic_batching", Class: Honoured, Doc: "Queued requests are joined into batches."},
	{Path: "dynamic_batching.preferred_batch_size", Class: Honoured, Doc: "Batches of these sizes execute at once; smaller ones wait for the delay."},
	{Path: "dynamic_batching.max_queue_delay_microseconds", Class: Honoured, Doc: "How long the oldest request may wait for a larger batch."},
	{Path: "dynamic_batching.preserve_ordering", Class: Honoured, Doc: "Responses leave in the order in which their requests arrived."},
	{Path: "dynamic_batching.priority_levels", Class: Honoured, Doc: "The number of priority levels of the queue. 1 is the highest."},
	{Path: "dynamic_batching.default_priority_level", Class: Honoured, Doc: "The level of requests without a valid priority."},
	{Path: "dynamic_batching.default_queue_policy", Class: Honoured, Doc: "The limits of each level's queue, unless the level has its own policy."},
	{Path: "dynamic_batching.default_queue_policy.timeout_action", Class: Honoured, Doc: "After a request's time in the queue is over, REJECT refuses it, and DELAY serves it after the others."},
	{Path: "dynamic_batching.default_queue_policy.default_timeout_microseconds", Class: Honoured, Doc: "How long a request may wait in the queue. 0: without a limit."},
	{Path: "dynamic_batching.default_queue_policy.allow_timeout_override", Class: Honoured, Doc: "A request may set a shorter time with its `timeout` parameter."},
	{Path: "dynamic_batching.default_queue_policy.max_queue_size", Class: Honoured, Doc: "How many requests may wait. 0: without a limit."},
	{Path: "dynamic_batching.priority_queue_policy", Class: Honoured, Doc: "The policies of single levels."},
	{Path: "dynamic_batching.priority_queue_policy.timeout_action", Class: Honoured, Doc: "After a request's time in the queue is over, REJECT refuses it, and DELAY serves it after the others."},
	{Path: "dynamic_batching.priority_queue_policy.default_timeout_microseconds", Class: Honoured, Doc: "How long a request may wait in the queue. 0: without a limit."},
	{Path: "dynamic_batching.priority_queue_policy.allow_timeout_override", Class: Honoured, Doc: "A request may set a shorter time with its `timeout` parameter."},
	{Path: "dynamic_batching.priority_queue_policy.max_queue_size", Class: Honoured, Doc: "How many requests may wait. 0: without a limit."},
	{Path: "sequence_batching", Class: Honoured, Doc: "Requests with the same correlation id run in order, in one slot of one instance."},
	{Path: "sequence_batching.max_sequence_idle_microseconds", Class: Honoured, Doc: "How long a sequence may be idle before it ends; 1 s by default."},
	{Path: "sequence_batching.control_input", Class: Honoured, Doc: "Inputs that the server fills. Requests do not contain them."},
	{Path: "sequence_batching.control_input.name", Class: Honoured, Doc: "The input's name."},
	{Path: "sequence_batching.control_input.control", Class: Honoured, Doc: "The content: START, READY, END or the correlation id."},
	{Path: "sequence_batching.control_input.control.kind", Class: Honoured, Doc: "Which of them."},
	{Path: "sequence_batching.control_input.control.int32_false_true", Class: Honoured, Doc: "The values for false and true as TYPE_INT32."},
	{Path: "sequence_batching.control_input.control.fp32_false_true", Class: Honoured, Doc: "The values for false and true as TYPE_FP32."},
	{Path: "sequence_batching.control_input.control.bool_false_true", Class: Honoured, Doc: "The values for false and true as TYPE_BOOL."},
	{Path: "sequence_batching.control_input.control.data_type", Class: Honoured, Doc: "The type of the correlation id."},
	{Path: "sequence_batching.state", Class: Honoured, Doc: "An output that becomes an input of the sequence's next request. Requests contain neither; a response contains the output only if it is also listed in `output`."},
	{Path: "sequence_batching.state.input_name", Class: Honoured, Doc: "The name of the input."},
	{Path: "sequence_batching.state.output_name", Class: Honoured, Doc: "The name of the output."},
	{Path: "sequence_batching.state.data_type", Class: Honoured, Doc: "The type of both."},
	{Path: "sequence_batching.state.dims", Class: Honoured, Doc: "The dimensions without the batch dimension. A variable one is 1 at first."},
	{Path: "sequence_batching.state.initial_state", Class: Honoured, Doc: "The state at the start of a sequence: zeros, or a file in the model's folder initial_state."},
	{Path: "sequence_batching.state.initial_state.name", Class: Honoured, Doc: "A name for error texts. It must not be empty."},
	{Path: "sequence_batching.state.initial_state.data_type", Class: Honoured, Doc: "The type. It must be that of the state."},
	{Path: "sequence_batching.state.initial_state.dims", Class: Honoured, Doc: "The dimensions."},
	{Path: "sequence_batching.state.initial_state.zero_data", Class: Honoured, Doc: "Zeros, or empty strings."},
	{Path: "sequence_batching.state.initial_state.data_file", Class: Honoured, Doc: "The file's name."},
	{Path: "sequence_batching.state.use_same_buffer_for_input_output", Class: Honoured, Doc: "The backend may write the next state over the current one, if the state has a fixed size and the model supports it, as the built-in sequence does; this also happens when the request then fails. Other models use two buffers in turn."},
	{Path: "sequence_batching.state.use_growable_memory", Class: Hinted, Doc: "Every state with variable dims may grow from request to request, with and without this field: its memory comes from a pool."},
	{Path: "sequence_batching.direct", Class: Honoured, Doc: "A sequence's slot is its row of the batch. The default."},
	{Path: "sequence_batching.direct.max_queue_delay_microseconds", Class: Honoured, Doc: "How long the oldest request may wait for more slots to have a request."},
	{Path: "sequence_batching.direct.minimum_slot_utilization", Class: Honoured, Doc: "The fraction of the slots with a request from which on a batch executes at once."},
	{Path: "sequence_batching.oldest", Class: Honoured, Doc: "Requests of different sequences are batched dynamically, the oldest first."},
	{Path: "sequence_batching.oldest.max_candidate_sequences", Class: Honoured, Doc: "How many sequences an instance serves at a time; max_batch_size by default."},
	{Path: "sequence_batching.oldest.preferred_batch_size", Class: Honoured, Doc: "Batches of these sizes execute at once; smaller ones wait for the delay."},
	{Path: "sequence_batching.oldest.max_queue_delay_microseconds", Class: Honoured, Doc: "How long the oldest request may wait for a larger batch."},
	{Path: "sequence_batching.oldest.preserve_ordering", Class: Honoured, Doc: "The responses of an instance leave in the order in which their requests became ready."},
	{Path: "sequence_batching.iterative_sequence", Class: Honoured, Doc: "A request needs no correlation id, and the model may reschedule it."},
	{Path: "ensemble_scheduling", Class: Honoured, Doc: "The steps of an ensemble."},
	{Path: "ensemble_scheduling.step", Class: Honoured, Doc: "One step. The order of the steps does not matter."},
	{Path: "ensemble_scheduling.step.model_name", Class: Honoured, Doc: "The model of the step."},
	{Path: "ensemble_scheduling.step.model_version", Class: Honoured, Doc: "The model's version. -1 is the latest; so is 0, with a notice."},
	{Path: "ensemble_scheduling.step.input_map", Class: Honoured, Doc: "Maps the model's inputs to tensors of the ensemble."},
	{Path: "ensemble_scheduling.step.output_map", Class: Honoured, Doc: "Maps the model's outputs to tensors of the ensemble."},
	{Path: "ensemble_scheduling.step.model_namespace", Class: Honoured, Doc: "The repository of the model. It requires --model-namespacing=true."},
	{Path: "ensemble_scheduling.max_inflight_requests", Class: Honoured, Doc: "The largest number of this ensemble's requests that each step processes at a time. Further requests wait in order of arrival."},
	{Path: "instance_group", Class: Honoured, Doc: "How many instances of the model execute, and where."},
	{Path: "instance_group.name", Class: Honoured, Doc: "A name for error texts."},
	{Path: "instance_group.kind", Class: Honoured, Doc: "KIND_GPU executes on GPUs, KIND_CPU on the CPU, KIND_MODEL where the model itself decides. KIND_AUTO is KIND_GPU for backends that compute on GPUs where there is one, and else the CPU; a native step of KIND_AUTO is where its neighbours in an ensemble are. On a machine without a GPU, KIND_GPU is refused with Triton's error text, or executes on the CPU with --gpu-fallback=cpu."},
	{Path: "instance_group.count", Class: Honoured, Doc: "The number of instances."},
	{Path: "instance_group.rate_limiter", Class: Honoured, Doc: "With --rate-limit=execution_count: which resources an execution needs, and its priority."},
	{Path: "instance_group.rate_limiter.resources", Class: Honoured, Doc: "The resources that one execution needs."},
	{Path: "instance_group.rate_limiter.resources.name", Class: Honoured, Doc: "The resource's name, as in --rate-limit-resource."},
	{Path: "instance_group.rate_limiter.resources.global", Class: Honoured, Doc: "Whether all devices share the resource. Otherwise each device has its own."},
	{Path: "instance_group.rate_limiter.resources.count", Class: Honoured, Doc: "How much of the resource."},
	{Path: "instance_group.rate_limiter.priority", Class: Honoured, Doc: "The weight. The instance with the smallest product of weight and executions goes first: while both have work, 2 executes half as often as 1. 0 means 1."},
	{Path: "instance_group.gpus", Class: Honoured, Doc: "The GPUs; all by default. Each one gets `count` instances. Refused with Triton's error text for kinds without a GPU."},
	{Path: "instance_group.secondary_devices", Class: Refused, Doc: "DLA devices are not supported."},
	{Path: "instance_group.profile", Class: Refused, By: []string{"tensorrt"}, Doc: "Only TensorRT has profiles: the instances execute a plan with those of the given numbers, by default 0."},
	{Path: "instance_group.passive", Class: Honoured, Doc: "The instances are created and get no requests."},
	{Path: "instance_group.host_policy", Class: Honoured, Doc: "The --host-policy that binds the instances to cores. By default cpu, model or gpu_ID."},
	{Path: "default_model_filename", Class: Honoured, Doc: "The model's file in its version folder."},
	{Path: "cc_model_filenames", Class: Honoured, Doc: "The model's file for instances on GPUs of a compute capability, for example key \"7.5\" or \"9.0\". Other capabilities, and the CPU, use default_model_filename. GPUs of one model must have one file."},
	{Path: "metric_tags", Class: Honoured, Doc: "Additional labels of the model's metrics. Each name gets an underscore as prefix."},
	{Path: "parameters", Class: Honoured, Doc: "Settings for the backend, and for padding. `precision` declares in which precision a model of onnxruntime or openvino computes, and `fidelity` how close to its original a version must be: [precision.md](precision.md). Of an ensemble: `require_resident`, `true` or `false`. With true the ensemble does not load if a tensor would be copied between two of its steps: between host and device, or between devices. The error names each such edge, its steps and their places. The upload of the request's inputs and the download of its outputs are allowed, and so are BYTES tensors, which are always on the host. Ensembles within it are included."},
	{Path: "parameters.string_value", Class: Honoured, Doc: "The value of the setting."},
	{Path: "model_warmup", Class: Honoured, Doc: "Requests that every instance executes before the model is ready."},
	{Path: "model_warmup.name", Class: Honoured, Doc: "A name for error texts."},
	{Path: "model_warmup.batch_size", Class: Honoured, Doc: "How many requests of one row execute together, or one after the other if the model does not batch. 0 skips the sample."},
	{Path: "model_warmup.inputs", Class: Honoured, Doc: "The data of each input. For a model with sequence batching, each request is one sequence; control inputs and states may be given."},
	{Path: "model_warmup.inputs.data_type", Class: Honoured, Doc: "Its type."},
	{Path: "model_warmup.inputs.dims", Class: Honoured, Doc: "Its extents, without the batch dimension."},
	{Path: "model_warmup.inputs.zero_data", Class: Honoured, Doc: "Zeros, or empty strings."},
	{Path: "model_warmup.inputs.random_data", Class: Honoured, Doc: "Random bytes, or empty strings."},
	{Path: "model_warmup.inputs.input_data_file", Class: Honoured, Doc: "A file in the model's folder warmup."},
	{Path: "model_warmup.count", Class: Honoured, Doc: "How often the request is sent. At least once."},
	{Path: "model_operations", Class: Refused, By: []string{onnxRuntime}, Doc: "Libraries with operators for ONNX Runtime, in the version's or the model's folder. Other backends load none."},
	{Path: "model_transaction_policy", Class: Honoured, Doc: "How many responses a request has."},
	{Path: "model_transaction_policy.decoupled", Class: Honoured, Doc: "Any number of responses."},
	{Path: "model_repository_agents", Class: Honoured, Doc: "Agents that inspect a model's files before it is loaded."},
	{Path: "model_repository_agents.agents", Class: Honoured, Doc: "One agent."},
	{Path: "model_repository_agents.agents.name", Class: Honoured, Doc: "The agent's name: checksum. Others are refused; the error names their library."},
	{Path: "model_repository_agents.agents.parameters", Class: Honoured, Doc: "MD5:FILE or SHA256:FILE, with the expected sum as the value."},
	{Path: "response_cache", Class: Honoured, Doc: "Whether responses are cached."},
	{Path: "response_cache.enable", Class: Honoured, Doc: "With --cache-config, a request equal to an earlier one gets the cached response."},
	{Path: "model_metrics", Class: Honoured, Doc: "How metrics of the model are recorded."},
	{Path: "model_metrics.metric_control", Class: Honoured, Doc: "The settings of one metric family."},
	{Path: "model_metrics.metric_control.metric_identifier", Class: Honoured, Doc: "The family."},
	{Path: "model_metrics.metric_control.metric_identifier.family", Class: Honoured, Doc: "The family's name: nv_inference_first_response_histogram_ms."},
	{Path: "model_metrics.metric_control.histogram_options", Class: Honoured, Doc: "The options of a histogram."},
	{Path: "model_metrics.metric_control.histogram_options.buckets", Class: Honoured, Doc: "The upper bounds of the buckets, ascending."},
}

// unsupported rejects every field that is set and not honoured, and every library.
func (l *problems) unsupported() {
	l.eachOf(Refused, func(f *Field, at string, fd protoreflect.FieldDescriptor) {
		if slices.Contains(f.By, l.cfg.GetBackend()) {
			return
		}
		named := f.Path
		if fd.Enum() != nil {
			named += ": " + f.Only
		}
		l.add(NotHonoured, at, "model '%s' sets '%s', which this server does not support", l.cfg.GetName(), named)
		l.fix("remove the field. " + f.Doc)
	})
	l.libraries()
}

// Hints returns a notice for every field in the file, before Normalise, that only affects speed.
func Hints(cfg *modelconfig.ModelConfig) []Diagnostic {
	l := &problems{cfg: cfg}
	l.eachOf(Hinted, func(f *Field, at string, _ protoreflect.FieldDescriptor) {
		reason := strings.ToLower(f.Doc[:1]) + strings.TrimSuffix(f.Doc[1:], ".")
		l.add(Hint, at, "model '%s' sets '%s', which has no effect here: %s", cfg.GetName(), f.Path, reason)
	})
	return l.list
}

// eachOf visits the set fields of a class, each once, where it is set first.
func (l *problems) eachOf(class Class, visit func(f *Field, at string, fd protoreflect.FieldDescriptor)) {
	said := map[string]bool{}
	visitSet(l.cfg.ProtoReflect(), "", "", func(plain, at string, fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		f, ok := FieldOf(plain)
		if !ok || f.Class != class || f.Value != nil && (plain != f.Path || !f.Value(v)) {
			return true
		}
		if !said[f.Path] {
			said[f.Path] = true
			visit(&f, at, fd)
		}
		return false
	})
}

// tritonLibrary matches the file name of a Triton backend, cache, agent or batching strategy.
var tritonLibrary = regexp.MustCompile(`libtriton\w*\.so|\.so(\.\d+)*$`)

// batchStrategy is the parameter that names a library for custom batching.
const batchStrategy = "TRITON_BATCH_STRATEGY_PATH"

// checksumAgent is the repository agent that comes with Triton.
const checksumAgent = "checksum"

// libraries rejects libraries that Triton would load.
func (l *problems) libraries() {
	name := l.cfg.GetName()
	refuse := func(field, library string) {
		l.add(SharedLibrary, field, "model '%s' names the shared library '%s' in '%s', which this server does not load", name, library, field)
	}
	l.runtime()
	own := "libtriton_" + l.cfg.GetBackend() + ".so" // names the backend a second time
	if f := l.cfg.GetDefaultModelFilename(); f != own && tritonLibrary.MatchString(path.Base(f)) {
		refuse("default_model_filename", f)
	}
	if p, ok := l.cfg.GetParameters()[batchStrategy]; ok {
		refuse("parameters."+batchStrategy, p.GetStringValue())
	}
	for i, a := range l.cfg.GetModelRepositoryAgents().GetAgents() {
		if a.GetName() != checksumAgent {
			refuse("model_repository_agents.agents["+strconv.Itoa(i)+"]", "libtritonrepoagent_"+a.GetName()+".so")
		}
	}
	if l.cfg.GetBackend() == onnxRuntime {
		return // it has custom operators
	}
	for i, f := range l.cfg.GetModelOperations().GetOpLibraryFilename() {
		refuse("model_operations.op_library_filename["+strconv.Itoa(i)+"]", f)
	}
}

// runtime accepts the library of the backend's name, which Triton would load, and rejects others with Triton's text.
func (l *problems) runtime() {
	name, r := l.cfg.GetName(), l.cfg.GetRuntime()
	if r == "" || r == "libtriton_"+l.cfg.GetBackend()+".so" {
		return
	}
	text := "unable to find backend library '%s' for model '%s', expected 'libtriton_" + l.cfg.GetBackend() + ".so'"
	if !filepath.IsLocal(r) {
		text = "backend library name '%s' escapes backend directory, for model '%s', check model config runtime field"
	}
	l.add(SharedLibrary, "runtime", text, r, name)
	l.fix("remove the field: the library of backend '" + l.cfg.GetBackend() + "' is found by its name")
}

// visitSet visits the set fields of m, outer ones first. A field of a list or map is visited once per element:
// plain is its path, at the path with indices. visit reports whether to descend.
func visitSet(m protoreflect.Message, plain, at string, visit func(plain, at string, fd protoreflect.FieldDescriptor, v protoreflect.Value) bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		name := fd.TextName()
		one := func(where string, v protoreflect.Value, message bool) {
			if visit(plain+name, where, fd, v) && message {
				visitSet(v.Message(), plain+name+".", where+".", visit)
			}
		}
		switch v := m.Get(fd); {
		case fd.IsMap():
			for _, k := range sortedMapKeys(v.Map()) {
				one(at+name, v.Map().Get(k), fd.MapValue().Message() != nil)
			}
		case fd.IsList():
			for i := range v.List().Len() {
				one(at+name+"["+strconv.Itoa(i)+"]", v.List().Get(i), fd.Message() != nil)
			}
		default:
			one(at+name, v, fd.Message() != nil)
		}
	}
}

func sortedMapKeys(m protoreflect.Map) []protoreflect.MapKey {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(x, y protoreflect.MapKey) int {
		if n, ok := x.Interface().(uint64); ok {
			return cmp.Compare(n, y.Uint())
		}
		return cmp.Compare(x.String(), y.String())
	})
	return keys
}

// alternatives says what can serve a model of a Triton backend that this server may lack.
var alternatives = map[string]string{
	"tensorrt":    "serve the ONNX file that the plan was made of, with backend 'onnxruntime'",
	"oneflow":     "serve the folder by a Python model, as examples/oneflow does, or export the network to ONNX with oneflow_onnx and set backend 'onnxruntime'",
	"vllm":        "serve language models by a server of their own",
	"tensorrtllm": "serve language models by a server of their own",
}

// UnknownBackend is the error of a model with an unknown backend. It starts with Triton's text and names an
// alternative if there is one. field is the field that names the backend; have lists the known ones.
func UnknownBackend(model, backend, field string, have []string) error {
	text := DidYouMean(backend, have)
	if other := alternatives[backend]; other != "" {
		text = ": " + other
	} else if text != "" {
		text = "." + text
	}
	return WithFix(Errorf(NotBuiltIn, field, "unable to find backend library for backend '%s', try specifying runtime on the model configuration. "+
		"Model '%s' needs backend '%s', which is not built in%s", backend, model, backend, text),
		"use one of the backends that are built in: "+strings.Join(have, ", "))
}
