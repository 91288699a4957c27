package options

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
)

// Class is what the server makes of a flag.
type Class uint8

// The classes of flags.
const (
	// Honoured flags do what they say.
	Honoured Class = iota
	// WithoutEffect flags are accepted and checked and mean nothing here; a server that
	// is given one says so when it starts.
	WithoutEffect
	// Refused flags ask for what is not built; giving one is an error, except with the
	// value that switches it off.
	Refused
)

// String returns the class in words.
func (c Class) String() string {
	return [...]string{"honoured", "accepted without effect", "refused"}[c]
}

// Flag is an option of serve. It can be given on the command line as --NAME=VALUE or
// --NAME VALUE, as an environment variable (Env), and as a key of the file that --config
// names. What is given nearer, in this order, stands for what is given farther.
type Flag struct {
	Name string
	// Arg names the value, as in "port"; empty for a flag that takes none.
	Arg string
	// Default is the value that stands when none is given; empty when there is none.
	Default string
	// Group is the heading in the help.
	Group string
	// Help is a sentence about it, without a full stop.
	Help  string
	Class Class
	// Why is the reason why a flag has no effect or is refused.
	Why string
	// Many flags may be given several times; each adds a value.
	Many bool
	// Own marks a flag that tritonserver lacks.
	Own bool
	// Instead, when not empty, marks a deprecated flag and names what stands for it.
	Instead string

	// alias names the flag of which this one is another name.
	alias string
	// set checks a value and puts it into o.
	set func(o *Options, value string) error
}

// envPrefix begins the names of the environment variables.
const envPrefix = "TUTTI_"

// Env is the name of the flag's environment variable.
func (f *Flag) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// split takes a list of values from one text, as an environment variable holds it: one
// a line, or between commas where values have none of their own.
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

// byPrefix returns the flag that a command line means by a shortened name, as getopt_long does.
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

// nearest returns the name of the flag that is spelt most like name, or nothing when
// none is.
func nearest(list []Flag, name string) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return config.Nearest(name, names, len(name)/3+1)
}
