package options

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
)

// Class is how the server treats a flag.
type Class uint8

// The classes of flags.
const (
	// Honoured flags do what their help says.
	Honoured Class = iota
	// WithoutEffect flags are accepted and checked, but change nothing; the server logs a notice for each at its
	// start.
	WithoutEffect
	// Refused flags belong to features that are not built. They are an error, except with the value that switches
	// the feature off.
	Refused
)

// String returns the class in words.
func (c Class) String() string {
	return [...]string{"honoured", "accepted without effect", "refused"}[c]
}

// Flag is an option of serve. It may be given on the command line as --NAME=VALUE or --NAME VALUE, as an
// environment variable (Env), and as a key of the file of --config. The command line takes precedence over the
// environment, and the environment over the file. For example: --http-port=80, TUTTI_HTTP_PORT=80, "http-port: 80".
type Flag struct {
	Name string
	// Arg names the value, as in "port"; empty for a flag without a value.
	Arg string
	// Default is the value of a flag that is not given; empty if there is none.
	Default string
	// Group is the heading of the flag in the help.
	Group string
	// Help is a sentence about it, without a full stop.
	Help  string
	Class Class
	// Why is the reason that a flag has no effect or is refused.
	Why string
	// Many flags may be repeated; each occurrence adds a value.
	Many bool
	// Own marks a flag that tritonserver lacks.
	Own bool
	// Instead, unless empty, marks a deprecated flag and names its replacement.
	Instead string

	// alias is the name of the flag of which this one is a synonym.
	alias string
	// set checks a value and stores it in o.
	set func(o *Options, value string) error
}

// envPrefix is the prefix of the environment variables.
const envPrefix = "TUTTI_"

// Env returns the name of the flag's environment variable. For example: TUTTI_HTTP_PORT for http-port.
func (f *Flag) Env() string { return envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")) }

// split splits the value of an environment variable into the values of a repeated flag: at line ends, or at commas
// if the values of the flag contain none.
func (f *Flag) split(text string) []string {
	if !f.Many {
		return []string{text}
	}
	by := func(r rune) bool { return r == '\n' || r == ',' && !strings.Contains(f.Arg, ",") }
	var list []string
	for _, part := range strings.FieldsFunc(text, by) {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// The headings of the help, in its order.
const (
	groupServer   = "Server"
	groupModels   = "Models"
	groupLimits   = "Limits"
	groupHTTP     = "HTTP"
	groupGRPC     = "gRPC"
	groupMetrics  = "Metrics"
	groupLog      = "Log"
	groupTrace    = "Trace"
	groupCache    = "Response cache"
	groupMemory   = "Shared memory"
	groupDevices  = "Devices"
	groupBackends = "Backends"
	groupInert    = "Accepted without effect"
	groupRefused  = "Refused: not built"
)

func groups() []string {
	return []string{
		groupServer, groupModels, groupLimits, groupHTTP, groupGRPC, groupMetrics, groupLog, groupTrace, groupDashboard, groupCache, groupMemory, groupDevices,
		groupBackends, groupInert, groupRefused,
	}
}

// Flags returns every option of serve, by group.
func Flags() []Flag {
	return slices.Concat(serverFlags(), modelFlags(), limitFlags(), httpFlags(), grpcFlags(), metricsFlags(), logFlags(), traceFlags(), dashboardFlags(),
		cacheFlags(), memoryFlags(), deviceFlags(), backendFlags(), inertFlags(), refusedFlags())
}

// findFlag returns the named flag of list, or nil.
func findFlag(list []Flag, name string) *Flag {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// byPrefix returns the flag of an abbreviated name, as getopt_long does.
func byPrefix(list []Flag, name string) (*Flag, error) {
	if f := findFlag(list, name); f != nil {
		return f, nil
	}
	var found []*Flag
	for i := range list {
		if name != "" && strings.HasPrefix(list[i].Name, name) {
			found = append(found, &list[i])
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("unrecognized option '--%s'%s", name, suggestion("--", nearest(list, name)))
	}
	var names []string
	for _, f := range found {
		names = append(names, "--"+f.Name)
	}
	return nil, fmt.Errorf("option '--%s' is ambiguous, it may be %s", name, strings.Join(names, ", "))
}

func suggestion(prefix, name string) string {
	if name == "" {
		return ""
	}
	return ", did you mean '" + prefix + name + "'?"
}

// nearest returns the name of the flag with the most similar spelling, empty if none is similar.
func nearest(list []Flag, name string) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return config.Nearest(name, names, len(name)/3+1)
}
