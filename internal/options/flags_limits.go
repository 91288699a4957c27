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
			Help: "execution_count makes instances acquire the resources of their rate_limiter before they execute, those with the fewest executions first; off ignores rate_limiter",
			set:  rateLimit,
		},
		Flag{
			Name: "rate-limit-resource", Arg: "name:count[:device]", Many: true,
			Help: "Available amount of a resource, on the device of that number or on each; by default as much as the instance that needs the most",
			set:  limiterResource,
		},
		Flag{
			Name: "cpu-threads", Arg: argNumber, Default: "0", Own: true,
			Help: "Most threads of all models that execute on the CPU at a time; a model with more threads runs alone; 0 for no bound",
			set:  integer(func(o *Options) *int { return &o.Limits.Threads }, 0, maxThreads),
		},
		Flag{
			Name: "max-device-executions", Arg: argNumber, Default: "0", Own: true,
			Help: "Most concurrent executions on each device and on the CPU; 0 for no bound",
			set:  integer(func(o *Options) *int { return &o.Limits.Executions }, 0, maxThreads),
		},
		Flag{
			Name: "max-inflight-bytes", Arg: argBytes, Own: true,
			Help: "Most bytes of HTTP and gRPC requests in flight together; further requests are refused as unavailable; 0 for no bound; by default half of the memory of the machine or its control group",
			set:  inFlight,
		},
		Flag{
			Name: "host-policy", Arg: "policy,key=value", Many: true,
			Help: "Setting of a host policy: cpu-cores=0-3,8-11 binds the threads of its instances, numa-node=0 their memory; policies are cpu, model, gpu_ID and those of host_policy",
			set:  hostPolicy,
		},
	)
}

// maxThreads exceeds the threads of any machine.
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

// limiterResource reads one limit. Counts have 32 bits, as in config.pbtxt.
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

// hostPolicy adds a setting to a policy; the last value of a key counts.
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

// limitNotices returns notices of limits that have no effect.
func (o *Options) limitNotices() []Notice {
	if len(o.Limits.Resources) > 0 && !o.Limits.RateLimit {
		return []Notice{{Option: "--rate-limit-resource", Text: "without effect: --rate-limit is off"}}
	}
	return nil
}
