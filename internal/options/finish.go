package options

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// finish checks the flags against each other and sets the fields that depend on several of them.
func (o *Options) finish(environ []string) error {
	if o.Metrics.Address == "" {
		o.Metrics.Address = o.HTTP.Address
	}
	if slices.Contains(o.Trace.Levels, traceOff) {
		o.Trace.Levels = []string{traceOff}
	}
	o.Log.Raw = slices.ContainsFunc(environ, func(e string) bool { // log messages are not escaped
		value, ok := strings.CutPrefix(e, "TRITON_SERVER_ESCAPE_LOG_MESSAGES=")
		on, err := parseBool(value)
		return ok && err == nil && !on
	})
	const delayed = "TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC"
	if slices.ContainsFunc(environ, func(e string) bool { return strings.HasPrefix(e, delayed+"=") }) {
		o.notice(delayed, "without effect: nothing is held up for tests")
	}
	if len(o.Limits.Resources) > 0 && !o.Limits.RateLimit {
		o.notice("--rate-limit-resource", "without effect: --rate-limit is off")
	}
	if o.Trace.Mode != traceOpenTelemetry {
		for _, s := range o.Trace.OpenTelemetry {
			o.notice("--trace-config opentelemetry,"+s[0], "accepted without effect: the mode is "+traceTriton)
		}
	}
	return first(
		func() error {
			if slices.Contains(environ, "AIP_MODE=PREDICTION") { // Triton would serve only Vertex AI
				return errors.New("unsupported: environment variable AIP_MODE=PREDICTION, Vertex AI is not built")
			}
			return nil
		},
		func() error { return o.finishCache(environ) },
		func() error { return hook(environ, "TRITONSERVER_DELAY_SCHEDULER", &o.DelayScheduler) },
		func() error { return hook(environ, "TRITONSERVER_BACKLOG_DELAY_SCHEDULER", &o.BacklogDelayScheduler) },
		o.checkCompletion,
		o.checkModels,
		func() error { return o.HTTP.TLS.finish("http") },
		func() error { return o.GRPC.TLS.finish("grpc") },
		o.checkPorts,
		o.checkDashboard,
		o.checkClients,
		func() error { return o.finishJobs(environ) },
	)
}

// hook reads a test hook of the environment, a number of requests.
func hook(environ []string, name string, to *int) error {
	for _, e := range environ {
		text, ok := strings.CutPrefix(e, name+"=")
		if !ok || text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return fmt.Errorf("environment variable %s is '%s', expected a number of requests", name, text)
		}
		*to = n
	}
	return nil
}

// first returns the first error of the checks.
func first(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkCompletion reads auto-complete-config, a setting for all backends that the server itself applies.
func (o *Options) checkCompletion() error {
	v, ok := o.BackendConfig[""][keyComplete]
	if !ok {
		return nil
	}
	on, err := parseBool(v)
	if err != nil {
		return fmt.Errorf("--backend-config %s: %w", keyComplete, err)
	}
	o.DisableAutoComplete = o.DisableAutoComplete || !on
	return nil
}

func (o *Options) checkModels() error {
	switch {
	case o.ControlMode != ModeExplicit && len(o.LoadModels) > 0:
		return errors.New("Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.") //nolint:revive,staticcheck // Triton's words
	case len(o.LoadModels) > 1 && slices.Contains(o.LoadModels, allModels):
		return errors.New("Wildcard model name '*' must be the ONLY startup model if specified at all. (--load-model)") //nolint:staticcheck // Triton's words
	case o.ControlMode == ModePoll && o.PollInterval <= 0:
		return errors.New("--repository-poll-secs must be greater than 0 with --model-control-mode=poll")
	}
	return nil
}

func (t *TLS) finish(name string) error {
	t.Enabled = t.Enabled || t.Mutual
	switch {
	case t.Enabled && (t.ServerCert == "" || t.ServerKey == ""):
		return fmt.Errorf("--%s-use-ssl requires setting --%s-server-cert and --%s-server-key as well", name, name, name)
	case t.Mutual && t.RootCert == "":
		return fmt.Errorf("--%s-use-ssl-mutual requires setting --%s-root-cert as well", name, name)
	}
	return nil
}

// checkPorts refuses invalid ports of enabled protocols, and two protocols at one address.
func (o *Options) checkPorts() error {
	type place struct {
		name, flag string
		Endpoint
	}
	list := []place{
		{"HTTP", "http", o.HTTP.Endpoint},
		{"GRPC", "grpc", o.GRPC.Endpoint},
		{"metrics", "metrics", o.Metrics.Endpoint},
	}
	list = slices.DeleteFunc(list, func(p place) bool { return !p.Enabled })
	for i, a := range list {
		if err := inRange(int64(a.Port), 0, math.MaxUint16); err != nil {
			return fmt.Errorf("Bad option: \"--%s-port\".\n%w", a.flag, err) //nolint:staticcheck // Triton's words
		}
		for _, b := range list[i+1:] {
			if a.Port != 0 && a.Port == b.Port && a.Address == b.Address {
				return fmt.Errorf("The server cannot listen to %s requests and %s requests at the same address and port %s:%d", //nolint:staticcheck // Triton's words
					a.name, b.name, a.Address, a.Port)
			}
		}
	}
	return nil
}

// checkDashboard refuses a token that a header cannot carry.
func (o *Options) checkDashboard() error {
	if slices.ContainsFunc([]byte(o.Dashboard.Token), func(c byte) bool { return c < 0x21 || c > 0x7e }) {
		return errors.New("the dashboard's token has characters that a header cannot carry, expected printable ASCII without spaces")
	}
	return nil
}

// checkClients refuses weights of clients that are not told apart, and identities without an auth file.
func (o *Options) checkClients() error {
	switch l := &o.Limits; {
	case l.ClientKey == "" && len(l.ClientWeights) > 0:
		return errors.New("--client-weights needs --client-key, which tells clients apart")
	case l.ClientKey == "identity" && o.Access.File == "":
		return errors.New("--client-key=identity needs --auth-file, which has the names")
	}
	return nil
}

// InFlightBytes returns the most bytes of requests that may be in flight, 0 for no bound: the value of the option,
// by default half of the memory of the machine or its control group.
func (l *Limits) InFlightBytes() int64 {
	if l.InFlight != nil {
		return *l.InFlight
	}
	if n := memory(os.ReadFile); n < math.MaxInt64 {
		return n / 2
	}
	return 0
}

// memory returns the bytes of memory that this process may use: those of the machine, or the smallest limit of its
// control groups, of either version. It returns math.MaxInt64 if neither can be read.
func memory(read func(string) ([]byte, error)) int64 {
	least := int64(math.MaxInt64)
	if text, err := read("/proc/meminfo"); err == nil {
		least = min(least, total(text))
	}
	for _, name := range groupFiles(read) {
		text, err := read(name)
		if err != nil {
			continue
		}
		// A group without a limit says max, or more than there is.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
			least = min(least, n)
		}
	}
	return least
}

// total returns the memory of the machine from /proc/meminfo.
func total(meminfo []byte) int64 {
	for line := range bytes.Lines(meminfo) {
		f := strings.Fields(string(line))
		if len(f) > 1 && f[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil && kib > 0 && kib < math.MaxInt64>>10 {
				return kib << 10
			}
		}
	}
	return math.MaxInt64
}

// groupFiles lists the files with the limits of the process's control groups and of their ancestors. In a
// container, the process's own group is the root of the file system that it sees.
func groupFiles(read func(string) ([]byte, error)) (list []string) {
	const v2, v1 = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"
	text, err := read("/proc/self/cgroup")
	if err != nil {
		return []string{v2 + "/memory.max", v1 + "/memory.limit_in_bytes"}
	}
	for line := range bytes.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		switch {
		case len(f) < 3:
		case f[1] == "":
			list = append(list, above(v2, f[2], "memory.max")...)
		case f[1] == "memory":
			list = append(list, above(v1, f[2], "memory.limit_in_bytes")...)
		}
	}
	return list
}

// above lists a file of a group and of all its ancestors.
func above(root, group, file string) (list []string) {
	for group = path.Join("/", group); ; group = path.Dir(group) {
		list = append(list, path.Join(root, group, file))
		if group == "/" {
			return list
		}
	}
}
