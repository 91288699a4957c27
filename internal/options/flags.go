package options

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/gpu"
	"github.com/tutti-server/tutti/scheduler/device"
)

const (
	argBool    = "bool"
	argNumber  = "number"
	argPort    = "port"
	argAddress = "address"
	argFile    = "file"
	argFolder  = "folder"
	argMillis  = "milliseconds"
	argSeconds = "seconds"
	argBytes   = "bytes"
	argPattern = "pattern"

	yes, no = "true", "false"

	flagConfig, flagHelp = "config", "help"
	flagRepository       = "model-repository"
	flagNoComplete       = "disable-auto-complete-config"

	maxInt = math.MaxInt32 // the range of Triton's numbers
	// maxThreads exceeds the threads of any machine.
	maxThreads = 1 << 16
)

func (o *Options) serverFlags() []Flag {
	return grouped("Server",
		Flag{Name: flagHelp, Help: "Print this text"},
		Flag{Name: flagConfig, Arg: argFile, Own: true, Help: "YAML file whose keys are names of options; a list repeats an option"},
		word("id", "name", &o.ID, "triton", "Name of the server in its metadata"),
		span("exit-timeout-secs", argSeconds, &o.ExitTimeout, "30", 0, "Time limit for stopping: requests in flight are cut off after it"),
		// The default is shorter than Triton's wait for idle clients, which is the whole exit timeout.
		span("exit-connection-secs", argSeconds, &o.ExitConnections, "5", 0,
			"When stopping, time for which requests are still served while clients keep HTTP connections open, at most half of --exit-timeout-secs").own(),
		span("drain-secs", argSeconds, &o.Drain, "0", 0,
			"When told to stop, time for which the server is not ready and serves requests as before, so that load balancers notice; --exit-timeout-secs begins after it").own(),
		Flag{
			Name: "upgrade", Own: true, set: func(string) error { o.Upgrade = true; return nil },
			Help: "Replace the server that runs at the same ports: load the models, take its ports when ready, and let it complete its requests and end",
		},
		onOff("allow-upgrade", &o.AllowUpgrade, yes, "Let a process of the same user that has --upgrade replace this server").own(),
		onOff("exit-on-error", &o.ExitOnError, yes, "Exit if a model cannot be loaded at the start"),
		onOff("strict-readiness", &o.StrictReadiness, yes, "Be ready only if every model is ready; when false, as soon as the server accepts requests"),
	)
}

func (o *Options) modelFlags() []Flag {
	store := words("model-store", argFolder, &o.Repositories, "Another name of --model-repository")
	store.alias = flagRepository
	return grouped("Models",
		words(flagRepository, argFolder, &o.Repositories, "Folder that holds models"),
		store,
		oneOf("model-control-mode", "mode", &o.ControlMode, "none loads every model at the start; poll also loads and unloads models as the repositories change; "+
			"explicit loads the models of --load-model and those that clients request", ModeNone, ModePoll, ModeExplicit),
		span("repository-poll-secs", argSeconds, &o.PollInterval, "15", 0, "Time between two scans of the repositories in mode poll"),
		words("load-model", "model", &o.LoadModels, "Model to load at the start in mode explicit; * for all"),
		Flag{Name: "model-config-name", Arg: "name", Help: "Use configs/NAME.pbtxt in the folder of a model, if it exists, in place of config.pbtxt", set: o.configName},
		number("model-load-thread-count", argNumber, &o.LoadThreads, "4", 1, maxInt, "Models that load at a time"),
		number("model-load-retry-count", argNumber, &o.LoadRetries, "0", 0, maxInt, "Times that a failed load is repeated"),
		Flag{Name: flagNoComplete, Help: "Use every configuration as it is written; complete none from the model", set: o.noComplete},
		onOff("strict-ensemble-config", &o.StrictEnsembleConfig, no, "Read ensembles as Triton does, without inferring anything from their steps").own(),
		onOff("strict-parameters", &o.StrictParameters, no, "Refuse unknown parameters of models, backends and caches, instead of logging warnings").own(),
		oneOf("gpu-fallback", "where", &o.GPUFallback, "cpu runs models for missing GPUs on the CPU, with a warning for each; none refuses them",
			FallbackNone, FallbackCPU).own(),
		oneOf("isolation", "where", &o.Isolation, "process runs each instance of native backends in a process of its own, so that a crash there ends no other model; "+
			"none runs them in the server; the parameter isolation of a model takes precedence", IsolationNone, IsolationProcess).own(),
		Flag{Name: "strict-model-config", Arg: argBool, Default: no, Instead: "--" + flagNoComplete, Help: "true is the same as --" + flagNoComplete, set: o.noComplete},
		word("model-cache-directory", argFolder, &o.ModelCache, "", "Folder for models fetched from buckets; by default in the user's cache").own(),
		onOff("model-namespacing", &o.Namespacing, no, "Allow several repositories to have models of one name; an ensemble searches its own repository first"),
	)
}

// noComplete disables auto-completion. A false value of one flag does not undo another flag.
func (o *Options) noComplete(value string) error {
	off, err := parseBool(value)
	o.DisableAutoComplete = o.DisableAutoComplete || off
	return err
}

// configName refuses names that lead out of the folder configs.
func (o *Options) configName(value string) error {
	if value == "." || value == ".." || strings.ContainsAny(value, `/\\`) {
		return fmt.Errorf("invalid argument for --model-config-name: '%s', expected a name without a folder", value)
	}
	o.ModelConfigName = value
	return nil
}

func (o *Options) limitFlags() []Flag {
	var mode string
	limit := oneOf("rate-limit", "mode", &mode, "execution_count makes instances acquire the resources of their rate_limiter before they execute, "+
		"those with the fewest executions first; off ignores rate_limiter", "off", "execution_count")
	choose := limit.set
	limit.set = func(value string) error {
		err := choose(value)
		o.Limits.RateLimit = mode == "execution_count"
		return err
	}
	var timeout string
	perStep := oneOf("ensemble-timeout", "mode", &timeout, "What the parameter timeout of a request to an ensemble limits: graph for the time until its response, per-step "+
		"for the time in the queue of each step that allows it, as in Triton", "graph", "per-step").own()
	choosePerStep := perStep.set
	perStep.set = func(value string) error {
		err := choosePerStep(value)
		o.Limits.TimeoutPerStep = timeout == "per-step"
		return err
	}
	return grouped("Limits",
		limit, perStep,
		Flag{
			Name: "rate-limit-resource", Arg: "name:count[:device]", Many: true, set: o.limiterResource,
			Help: "Available amount of a resource, on the device of that number or on each; by default as much as the instance that needs the most",
		},
		number("cpu-threads", argNumber, &o.Limits.Threads, "0", 0, maxThreads,
			"Most threads of all models that execute on the CPU at a time; a model with more threads runs alone; 0 for no bound").own(),
		number("max-device-executions", argNumber, &o.Limits.Executions, "0", 0, maxThreads,
			"Most concurrent executions on each device and on the CPU; 0 for no bound").own(),
		Flag{
			Name: "max-inflight-bytes", Arg: argBytes, Own: true, set: o.inFlight,
			Help: "Most bytes of HTTP and gRPC requests in flight together; further requests are refused as unavailable; 0 for no bound; by default half of the memory of the machine or its control group",
		},
		Flag{
			Name: "client-key", Arg: "source", Own: true, set: o.clientKey,
			Help: "Tell clients apart, so that one that sends too much delays and loses only requests of its own: by header:NAME, which a trusted proxy should set, by identity, the name in the auth file, or by address; by default all are one",
		},
		Flag{
			Name: "client-weights", Arg: "client=weight,...", Many: true, Own: true, set: o.clientWeights,
			Help: "Weights of clients: of two that want too much, one with weight 3 gets three times as much as one with weight 1; * is any other client, 1 by default",
		},
		span("watchdog-secs", argSeconds, &o.Limits.Watchdog, "0", 0,
			"Report an execution of a model that takes longer, and end its process if it has one of its own; the model's parameter watchdog_secs takes precedence; 0 for no limit").own(),
		Flag{
			Name: "watchdog-factor", Arg: argNumber, Default: "0", Own: true, set: o.watchdogFactor,
			Help: "Do the same with an execution that takes longer than this times the 99.9th percentile of the model's last executions, and than a second; 0 for no limit",
		},
		Flag{
			Name: "memory-limit-bytes", Arg: argBytes, Own: true, set: o.memoryLimit,
			Help: "Memory of the server and its child processes; from 95 % of it on further requests are refused as unavailable, until less than 90 % is in use; 0 for no bound; by default the limit of the control group (v2), or what the machine has while the server has at least half of what is in use",
		},
		Flag{
			Name: "host-policy", Arg: "policy,key=value", Many: true, set: o.hostPolicy,
			Help: "Setting of a host policy: cpu-cores=0-3,8-11 binds the threads of its instances, numa-node=0 their memory; policies are cpu, model, gpu_ID and those of host_policy",
		},
	)
}

func (o *Options) inFlight(value string) error {
	o.Limits.InFlight = new(int64)
	return integer(o.Limits.InFlight, 0, math.MaxInt64)(value)
}

func (o *Options) clientKey(value string) error {
	if _, _, err := infer.ParseClientKey(value); err != nil {
		return fmt.Errorf("invalid argument for --client-key: %w", err)
	}
	o.Limits.ClientKey = value
	return nil
}

func (o *Options) clientWeights(value string) error {
	weights, err := infer.ParseClientWeights(value)
	if err != nil {
		return fmt.Errorf("invalid argument for --client-weights: %w", err)
	}
	if o.Limits.ClientWeights == nil {
		o.Limits.ClientWeights = map[string]float64{}
	}
	maps.Copy(o.Limits.ClientWeights, weights)
	return nil
}

// Shares returns what tells clients apart, nil for nothing.
func (l *Limits) Shares() *infer.Shares {
	if l.ClientKey == "" {
		return nil
	}
	source, header, err := infer.ParseClientKey(l.ClientKey)
	if err != nil {
		return nil // unreachable from flags, which are checked
	}
	return infer.NewShares(source, header, l.ClientWeights)
}

func (o *Options) watchdogFactor(value string) error {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || !(f == 0 || f >= 1 && f <= 1e6) {
		return fmt.Errorf("invalid argument for --watchdog-factor: '%s', expected 0 or a number from 1 to 1000000", value)
	}
	o.Limits.WatchdogFactor = f
	return nil
}

func (o *Options) memoryLimit(value string) error {
	o.Limits.Memory = new(int64)
	return integer(o.Limits.Memory, 0, math.MaxInt64)(value)
}

// limiterResource reads one limit. Counts have 32 bits, as in config.pbtxt.
func (o *Options) limiterResource(value string) error {
	parts := strings.Split(value, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
		return fmt.Errorf("--rate-limit-resource option format is '<resource_name>:<count>:<device>' or '<resource_name>:<count>'. Got %s", value)
	}
	l := device.Limit{Name: parts[0], Device: device.EveryDevice}
	err := integer(&l.Count, 0, maxInt)(parts[1])
	if err == nil && len(parts) > 2 {
		err = integer(&l.Device, 0, maxInt)(parts[2])
	}
	o.Limits.Resources = append(o.Limits.Resources, l)
	return err
}

// hostPolicy adds a setting to a policy; the last value of a key counts.
func (o *Options) hostPolicy(value string) error {
	name, key, v, err := triple("host-policy", "<policy name>,<setting>=<value>", ",", value)
	if err != nil {
		return err
	}
	put(&o.HostPolicies, name, key, v)
	_, err = device.ParsePolicy(name, o.HostPolicies[name])
	return err
}

func (o *Options) backendFlags() []Flag {
	return grouped("Backends", Flag{
		Name: "backend-config", Arg: "backend,key=value", Many: true, Help: "Setting of a backend; of every backend without a backend's name", set: o.BackendConfig.Set,
	}, Flag{
		Name: "backend-directory", Arg: argFolder, Default: backends.DefaultDirectory, set: o.BackendConfig.SetDirectory,
		Help: "Folder of libraries made for Triton, NAME/libtriton_NAME.so, of backends that are not built in",
	}, Flag{
		Name: "strict-python-outputs", Arg: argBool, Default: no, Own: true, set: o.pythonSetting("strict-outputs"),
		Help: "Refuse responses of Python models whose data types, shapes or rows differ from the configuration; when false, they are used with a warning",
	}, Flag{
		Name: "python-sandbox", Arg: argBool, Default: no, Own: true, set: o.pythonSetting("sandbox"),
		Help: "Start Python models without network and without a way to new privileges; the server does not load them where the kernel refuses that",
	})
}

// pythonSetting returns a function that sets the setting of the python backend with the same meaning.
func (o *Options) pythonSetting(key string) func(value string) error {
	return func(value string) error {
		on, err := parseBool(value)
		switch {
		case err != nil:
			return err
		case on:
			return o.BackendConfig.Set("python," + key + "=true")
		}
		delete(o.BackendConfig["python"], key)
		return nil
	}
}

// deviceFlags returns the flags of GPUs.
func (o *Options) deviceFlags() []Flag {
	g := &o.GPU
	peers := onOff("enable-peer-access", new(bool), yes, "Allow GPUs to access each other's memory; false copies through the host")
	peers.set = func(value string) error {
		on, err := parseBool(value)
		g.NoPeers = !on
		return err
	}
	return append(grouped("Devices",
		word("cuda-driver", "file", &g.Driver, "", "Library of the CUDA driver, by default the system's libcuda.so.1").own(),
		number("pinned-memory-pool-byte-size", argBytes, &g.PinnedSize, strconv.Itoa(gpu.DefaultPinned), 0, math.MaxInt64,
			"Size of the pool of pinned memory, for copies to and from GPUs; beyond it they use ordinary memory, which is slower"),
		pair("cuda-memory-pool-byte-size", "bytes", &g.Pools, func(v string) (int64, error) { return parseInt(v, 0, math.MaxInt64) },
			"Device memory for tensors of a GPU; beyond it they are in pinned memory, which is slower. By default there is no bound"),
		Flag{Name: "min-supported-compute-capability", Arg: argNumber, Default: fmt.Sprintf("%.1f", gpu.DefaultCapability), Help: "Lowest compute capability of GPUs that are used", set: anyFraction(&g.Capability)},
		peers,
		pair("model-load-gpu-limit", "fraction", &o.GPULoadLimits, parseShare, "Used fraction of a GPU's memory above which no model is loaded there"),
		oneOf("model-memory", "how", &o.ModelMemory, "refuse fails a load that does not fit on its GPU; lru evicts the models there that have been idle longest, "+
			"which load again with their next requests", MemoryRefuse, MemoryLRU).own(),
	), inert("Devices",
		Flag{Name: "cuda-virtual-address-size", Arg: "device:bytes", Many: true, Help: "Size of a GPU's virtual address range", Why: "the driver's pools grow without one", set: pairOf("cuda-virtual-address-size", anyInteger)},
	)...)
}

// pair returns the flag of values by the number of a GPU, as in 0:67108864.
func pair[T any](name, value string, to *map[int]T, parse func(string) (T, error), help string) Flag {
	return Flag{Name: name, Arg: "device:" + value, Many: true, Help: help, set: func(text string) error {
		device, v, ok := strings.Cut(text, ":")
		if !ok {
			return pairOf(name, nil)(text)
		}
		at, err := parseInt(device, 0, math.MaxInt16)
		if err != nil {
			return err
		}
		parsed, err := parse(v)
		if *to == nil {
			*to = map[int]T{}
		}
		(*to)[int(at)] = parsed
		return err
	}}
}

// inert returns flags of a group that are checked and have no effect.
func inert(group string, list ...Flag) []Flag {
	for i := range list {
		list[i].Class = WithoutEffect
	}
	return grouped(group, list...)
}

func inertFlags() []Flag {
	const (
		goroutines  = "every request has its own goroutine"
		noAgent     = "the agent checksum is part of the program, and others are refused"
		linkedCache = "caches are part of the program"
		pooled      = "memory is pooled by size, without a count"
	)
	return inert("Accepted without effect",
		Flag{Name: "http-thread-count", Arg: argNumber, Default: "8", Help: "Threads that serve HTTP", Why: goroutines, set: anyInteger},
		Flag{Name: "grpc-infer-thread-count", Arg: argNumber, Default: "2", Help: "Threads that serve gRPC inference", Why: goroutines, set: inferThreads},
		Flag{Name: "grpc-infer-allocation-pool-size", Arg: argNumber, Default: "8", Help: "Requests whose memory is kept for reuse", Why: pooled, set: anyInteger},
		Flag{Name: "grpc-max-response-pool-size", Arg: argNumber, Default: "2147483647", Help: "Responses whose memory is kept for reuse", Why: pooled, set: anyInteger},
		Flag{Name: "grpc-http2-max-pings-without-data", Arg: argNumber, Default: "2", Help: "Pings between two data frames", Why: "the gRPC library pings by time alone", set: anyInteger},
		Flag{Name: "grpc-http2-max-ping-strikes", Arg: argNumber, Default: "2", Help: "Early pings of a client before its connection is closed", Why: "the gRPC library always allows 2", set: anyInteger},
		Flag{Name: "buffer-manager-thread-count", Arg: argNumber, Default: "0", Help: "Threads that copy tensors", Why: "instances copy tensors themselves", set: anyInteger},
		Flag{Name: "cache-directory", Arg: argFolder, Default: "/opt/tritonserver/caches", Help: "Folder of cache libraries", Why: linkedCache, set: anything},
		Flag{Name: "repoagent-directory", Arg: argFolder, Default: "/opt/tritonserver/repoagents", Help: "Folder of repository agents", Why: noAgent, set: anything},
	)
}

func refusedFlags() []Flag {
	const sageMaker, vertex = "SageMaker is not built", "Vertex AI is not built"
	list := grouped("Refused: not built",
		Flag{Name: "allow-sagemaker", Arg: argBool, Default: no, Help: "Serve SageMaker; only false is accepted", Why: sageMaker},
		Flag{Name: "sagemaker-port", Arg: argPort, Default: "8080", Help: "Port of SageMaker", Why: sageMaker},
		Flag{Name: "sagemaker-safe-port-range", Arg: "from-to", Help: "Ports that SageMaker may use", Why: sageMaker},
		Flag{Name: "sagemaker-thread-count", Arg: argNumber, Default: "8", Help: "Threads that serve SageMaker", Why: sageMaker},
		Flag{Name: "allow-vertex-ai", Arg: argBool, Default: no, Help: "Serve Vertex AI; only false is accepted", Why: vertex},
		Flag{Name: "vertex-ai-port", Arg: argPort, Default: "8080", Help: "Port of Vertex AI", Why: vertex},
		Flag{Name: "vertex-ai-thread-count", Arg: argNumber, Default: "8", Help: "Threads that serve Vertex AI", Why: vertex},
		Flag{Name: "vertex-ai-default-model", Arg: "model", Help: "Model of Vertex AI's requests", Why: vertex},
	)
	for i := range list {
		list[i].Class = Refused
		list[i].set = refusal(list[i].Name, list[i].Why)
	}
	return list
}

// grouped sets the group of flags.
func grouped(group string, list ...Flag) []Flag {
	for i := range list {
		list[i].Group = group
	}
	return list
}
