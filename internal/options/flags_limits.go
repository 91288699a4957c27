package options

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/tutti-server/tutti/scheduler/device"
)

// The modes of --rate-limit.
const (
	limitOff        = "off"
	limitExecutions = "execution_count"
)

func limitFlags() []Flag {
	return grouped(groupLimits,
		Flag{
			Name: "rate-limit", Arg: "mode", Default: limitOff,
			Help: "execution_count has instances take the resources of their rate_limiter before they execute, who has executed least first; off has them execute as they have work",
			set:  rateLimit,
		},
		Flag{
			Name: "rate-limit-resource", Arg: "name:count[:device]", Many: true,
			Help: "How much there is of a resource, on the device of that number or on each; without any, as much as the instance that needs most",
			set:  limiterResource,
		},
		Flag{
			Name: "cpu-threads", Arg: argNumber, Default: "0", Own: true,
			Help: "Most threads of models that execute on the CPU at a time, together; one that has more runs alone; 0 for no bound",
			set:  integer(func(o *Options) *int { return &o.Limits.Threads }, 0, maxThreads),
		},
		Flag{
			Name: "max-device-executions", Arg: argNumber, Default: "0", Own: true,
			Help: "Most executions at a time on each device, and on the CPU; 0 for no bound",
			set:  integer(func(o *Options) *int { return &o.Limits.Executions }, 0, maxThreads),
		},
		Flag{
			Name: "max-inflight-bytes", Arg: argBytes, Own: true,
			Help: "Most bytes of requests being received, executed and answered over HTTP and gRPC together; what comes beyond is refused as unavailable; 0 for no bound; half of the memory of the machine, or of its control group, when left out",
			set:  inFlight,
		},
		Flag{
			Name: "host-policy", Arg: "policy,key=value", Many: true,
			Help: "Part of the machine that the instances of a policy use: cpu-cores=0-3,8-11 binds threads, numa-node=0 memory; policies are cpu, model, gpu_ID and those of host_policy",
			set:  hostPolicy,
		},
	)
}

// maxThreads is more than any machine has.
const maxThreads = 1 << 16

func inFlight(o *Options, value string) error {
	n, err := parseInt(value, 0, math.MaxInt64)
	o.Limits.InFlight = &n
	return err
}

func rateLimit(o *Options, value string) error {
	var mode string
	err := choice(func(*Options) *string { return &mode }, "rate-limit", limitOff, limitExecutions)(nil, value)
	o.Limits.RateLimit = mode == limitExecutions
	return err
}

// limiterResource reads one limit. Counts are those of config.pbtxt, 32 bits.
func limiterResource(o *Options, value string) error {
	parts := strings.Split(value, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
		return fmt.Errorf("--rate-limit-resource option format is '<resource_name>:<count>:<device>' or '<resource_name>:<count>'. Got %s", value)
	}
	count, err := parseInt(parts[1], 0, maxInt)
	if err != nil {
		return err
	}
	l := device.Limit{Name: parts[0], Count: count, Device: device.EveryDevice}
	if len(parts) > 2 {
		at, err := parseInt(parts[2], 0, maxInt)
		if err != nil {
			return err
		}
		l.Device = int(at)
	}
	o.Limits.Resources = append(o.Limits.Resources, l)
	return nil
}

// hostPolicy adds a setting to a policy; the last of a key counts.
func hostPolicy(o *Options, value string) error {
	name, key, v, err := triple("host-policy", "<policy name>,<setting>=<value>", ",", value)
	if err != nil {
		return err
	}
	settings := maps.Clone(o.HostPolicies[name])
	if settings == nil {
		settings = map[string]string{}
	}
	settings[key] = v
	if _, err := device.ParsePolicy(name, settings); err != nil {
		return err
	}
	if o.HostPolicies == nil {
		o.HostPolicies = map[string]map[string]string{}
	}
	o.HostPolicies[name] = settings
	return nil
}

// limitNotices tells of limits that change nothing.
func (o *Options) limitNotices() []Notice {
	if len(o.Limits.Resources) > 0 && !o.Limits.RateLimit {
		return []Notice{{Option: "--rate-limit-resource", Text: "without effect: --rate-limit is off"}}
	}
	return nil
}
