package options

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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
		linked      = "backends are part of the program"
		noAgent     = "no repository agent is built"
		linkedCache = "caches are part of the program"
		pooled      = "memory is pooled by size, without a count"
	)
	return inert(groupInert,
		Flag{Name: "http-thread-count", Arg: argNumber, Default: "8", Help: "Threads that serve HTTP", Why: goroutines, set: anyInteger},
		Flag{Name: "grpc-infer-thread-count", Arg: argNumber, Default: "2", Help: "Threads that serve gRPC inference", Why: goroutines, set: inferThreads},
		Flag{Name: "grpc-infer-allocation-pool-size", Arg: argNumber, Default: "8", Help: "Requests whose memory is kept for reuse", Why: pooled, set: anyInteger},
		Flag{Name: "grpc-max-response-pool-size", Arg: argNumber, Default: "2147483647", Help: "Responses whose memory is kept for reuse", Why: pooled, set: anyInteger},
		Flag{Name: "grpc-http2-max-pings-without-data", Arg: argNumber, Default: "2", Help: "Pings between two data frames", Why: "the gRPC library pings by time alone", set: anyInteger},
		Flag{Name: "grpc-http2-max-ping-strikes", Arg: argNumber, Default: "2", Help: "Early pings of a client before its connection is closed", Why: "the gRPC library always allows 2", set: anyInteger},
		Flag{Name: "buffer-manager-thread-count", Arg: argNumber, Default: "0", Help: "Threads that copy tensors", Why: "instances copy tensors themselves", set: anyInteger},
		Flag{Name: "cache-directory", Arg: argFolder, Default: "/opt/tritonserver/caches", Help: "Folder of cache libraries", Why: linkedCache, set: anything},
		Flag{Name: "backend-directory", Arg: argFolder, Default: "/opt/tritonserver/backends", Help: "Folder of backend libraries", Why: linked, set: anything},
		Flag{Name: "repoagent-directory", Arg: argFolder, Default: "/opt/tritonserver/repoagents", Help: "Folder of repository agents", Why: noAgent, set: anything},
	)
}

func refusedFlags() []Flag {
	const sageMaker, vertex = "SageMaker is not built", "Vertex AI is not built"
	list := grouped(groupRefused,
		Flag{Name: "allow-sagemaker", Arg: argBool, Default: no, Help: "Serve SageMaker; only false is accepted", Why: sageMaker},
		Flag{Name: "sagemaker-port", Arg: argPort, Default: "8080", Help: "Port of SageMaker", Why: sageMaker},
		Flag{Name: "sagemaker-safe-port-range", Arg: "from-to", Help: "Ports that SageMaker may use", Why: sageMaker},
		Flag{Name: "sagemaker-thread-count", Arg: argNumber, Default: "8", Help: "Threads that serve SageMaker", Why: sageMaker},
		Flag{Name: flagVertex, Arg: argBool, Default: no, Help: "Serve Vertex AI; only false is accepted", Why: vertex},
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

// refusal returns the setter of a flag of a feature that is not built. It accepts only the value that switches the
// feature off.
func refusal(flag, why string) setter {
	return func(_ *Options, value string) error {
		if strings.HasPrefix(flag, "allow-") {
			if on, err := parseBool(value); err != nil || !on {
				return err
			}
		}
		return fmt.Errorf("unsupported: --%s, %s", flag, why)
	}
}

func anything(*Options, string) error { return nil }

func anyBool(_ *Options, value string) error {
	_, err := parseBool(value)
	return err
}

func anyInteger(_ *Options, value string) error {
	_, err := parseInt(value, -1<<63, 1<<63-1)
	return err
}

func anyFraction(_ *Options, value string) error {
	if _, err := strconv.ParseFloat(value, 64); err != nil {
		return fmt.Errorf("Invalid option value. Got %s", value) //nolint:staticcheck // Triton's words
	}
	return nil
}

func inferThreads(_ *Options, value string) error {
	n, err := parseInt(value, -1<<63, 1<<63-1)
	if err == nil && (n < 2 || n > 128) {
		err = errors.New("invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.") //nolint:revive,staticcheck // Triton's words
	}
	return err
}

// pair checks a value of the form device:value.
func pair(flag, value string, check setter) error {
	device, v, ok := strings.Cut(value, ":")
	if !ok {
		return fmt.Errorf("Cannot parse option arguments due to missing delimiter. --%s option format is '<device>:<value>'. Got %s", flag, value) //nolint:staticcheck // Triton's words
	}
	return errors.Join(anyInteger(nil, device), check(nil, v))
}

func pairOf(flag string) setter {
	return func(_ *Options, value string) error { return pair(flag, value, anyInteger) }
}

func fractionOf(flag string) setter {
	return func(_ *Options, value string) error { return pair(flag, value, anyFraction) }
}
