package options

import (
	"fmt"
	"io"
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
	// WithoutEffect flags are accepted and checked, but change nothing; the server logs a notice for each at its start.
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
	Name    string
	Arg     string // Arg names the value, as in "port"; empty for a flag without a value
	Default string // the value of a flag that is not given; empty if there is none
	Group   string // the heading of the flag in the help
	Help    string // a sentence about it, without a full stop
	Class   Class
	Why     string   // the reason that a flag has no effect or is refused
	Many    bool     // Many flags may be repeated; each occurrence adds a value
	Own     bool     // Own marks a flag that tritonserver lacks
	Values  []string // Values are those that a flag with few accepts; nil for others
	Instead string   // Instead, unless empty, marks a deprecated flag and names its replacement

	alias string // the name of the flag of which this one is a synonym
	// set checks a value and stores it in the Options that the flag belongs to; nil for --help and --config.
	set setter
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

// Flags returns every option of serve, by group.
func Flags() []Flag { return new(Options).flags() }

// flags returns every option of serve, by group. They set the fields of o.
func (o *Options) flags() []Flag {
	return slices.Concat(o.serverFlags(), o.modelFlags(), o.limitFlags(), o.httpFlags(), o.grpcFlags(), o.metricsFlags(), o.logFlags(), o.traceFlags(),
		o.dashboardFlags(), o.accessFlags(), o.jobFlags(), o.cacheFlags(), grouped("Shared memory",
			onOff("allow-client-shm", &o.ClientSHM, no, "Allow clients to register shared memory of this machine for their tensors")), o.deviceFlags(), o.backendFlags(), inertFlags(), refusedFlags())
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

const (
	helpWidth  = 110
	helpIndent = 40
)

// Help prints every option of serve by group. program is the command before them. For example: "tutti serve".
func Help(w io.Writer, program string) {
	var b strings.Builder
	usage(&b, program)
	group := ""
	for _, f := range Flags() {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		f.describe(&b)
	}
	_, _ = io.WriteString(w, b.String())
}

// FullHelp is the option for Help in place of ShortHelp.
const FullHelp = "--help-all"

// common are the options that most servers need.
var common = []string{
	flagRepository, "config", "model-control-mode", "load-model", "backend-config", "gpu-fallback", "http-address", "http-port", "grpc-port",
	"metrics-port", "dashboard", "dashboard-token-file", "allow-client-shm", "max-inflight-bytes", "exit-on-error", "log-verbose", "jobs",
}

// ShortHelp prints the options that most servers need, and the names of all others by group.
func ShortHelp(w io.Writer, program string) {
	var b strings.Builder
	usage(&b, program)
	list := Flags()
	b.WriteString("\nCommon options:\n")
	for _, name := range common {
		if f := findFlag(list, name); f != nil {
			f.describe(&b)
		}
	}
	var groups []string
	names := map[string][]string{}
	for i := range list {
		if f := &list[i]; f.Class == Honoured && f.Instead == "" && !slices.Contains(common, f.Name) {
			if names[f.Group] == nil {
				groups = append(groups, f.Group)
			}
			names[f.Group] = append(names[f.Group], "--"+f.Name)
		}
	}
	b.WriteString("\nAll others, which " + program + " " + FullHelp + " explains:\n")
	for _, group := range groups {
		head := "  " + group + ":"
		b.WriteString(head)
		wrap(&b, len(head), nameIndent, strings.Join(names[group], " "))
	}
	_, _ = io.WriteString(w, b.String())
}

// nameIndent is the column of the names of options in ShortHelp.
const nameIndent = 24

// usage prints what comes before the options.
func usage(b *strings.Builder, program string) {
	fmt.Fprintf(b, "Usage: %s --%s FOLDER [options]\n\n", program, flagRepository)
	wrap(b, 0, 0, "An option is written --name=VALUE or --name VALUE. It may also be an environment variable, for example "+
		envPrefix+"HTTP_PORT for --http-port, or a key of the YAML file of --config. The command line takes precedence over the "+
		"environment, and the environment over the file. Options marked * may be repeated: as a list in the "+
		"file, and in the environment one per line, or separated by commas if their values contain none.")
}

// describe prints a flag with its argument and its help.
func (f *Flag) describe(b *strings.Builder) {
	head := "  --" + f.Name
	if f.Arg != "" {
		head += " <" + f.Arg + ">"
	}
	if f.Many {
		head += " *"
	}
	b.WriteString(head)
	used := len(head)
	if used >= helpIndent {
		b.WriteString("\n")
		used = 0
	}
	wrap(b, used, helpIndent, f.sentence())
}

func (f *Flag) sentence() string {
	s := f.Help
	if f.Default != "" {
		s += " (default " + f.Default + ")"
	}
	switch f.Class {
	case WithoutEffect:
		s += "; no effect: " + f.Why
	case Refused:
		s += "; " + f.Why
	case Honoured:
	}
	if f.Instead != "" {
		s += "; deprecated, use " + f.Instead
	}
	return s + "."
}

// wrap prints words in lines of helpWidth with an indent; used is the length of the text already on the first line.
func wrap(b *strings.Builder, used, indent int, text string) {
	b.WriteString(strings.Repeat(" ", max(0, indent-used)))
	at := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i > 0 && at+1+len(word) > helpWidth:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		case i > 0:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	b.WriteString("\n")
}
