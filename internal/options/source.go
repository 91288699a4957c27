package options

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-server/tutti/core/config"
)

// Parse reads the options of serve from the command line without the program's name, the environment as os.Environ
// returns it, and the file of --config. It returns flag.ErrHelp if the command line asks for help.
func Parse(args, environ []string) (*Options, error) {
	o := Default()
	flags := o.flags()
	line, err := fromLine(flags, args)
	if err != nil {
		return nil, err
	}
	sources := []given{line, o.fromEnvironment(flags, environ)}
	if list := nearestSource(sources, flagConfig); len(list) > 0 {
		fromFile, err := readConfig(flags, list[len(list)-1].text)
		if err != nil {
			return nil, err
		}
		sources = append(sources, fromFile)
	}
	if err := o.apply(flags, sources); err != nil {
		return nil, err
	}
	if !o.Jobs.Enabled {
		o.unusedJobs(flags, sources)
	}
	return &o, o.finish(environ)
}

// value is one value of a flag with its source.
type value struct {
	flag *Flag
	text string
	from string // from names the source in errors; empty for the command line
}

// given has the values of one source by the name of the flag; an alias counts as the flag that it stands for.
type given map[string][]value

func (g given) add(v value) {
	name := v.flag.Name
	if v.flag.alias != "" {
		name = v.flag.alias
	}
	g[name] = append(g[name], v)
}

// apply sets the values of the sources, which are sorted by precedence, highest first. Deprecated flags come before
// their replacements.
func (o *Options) apply(flags []Flag, sources []given) error {
	for _, deprecated := range []bool{true, false} {
		for i := range flags {
			f := &flags[i]
			if (f.Instead != "") != deprecated {
				continue
			}
			if err := o.set(nearestSource(sources, f.Name)); err != nil {
				return err
			}
		}
	}
	if nearestSource(sources, "response-cache-byte-size") != nil && nearestSource(sources, "cache-config") != nil {
		return errors.New("Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide one or the other.") //nolint:revive,staticcheck // Triton's words
	}
	return nil
}

func nearestSource(sources []given, name string) []value {
	for _, g := range sources {
		if list := g[name]; len(list) > 0 {
			return list
		}
	}
	return nil
}

func (o *Options) set(list []value) error {
	for i := range list {
		v := &list[i]
		if v.flag.set == nil {
			continue // it says where options come from
		}
		if err := v.flag.set(v.text); err != nil {
			from := ""
			if v.from != "" {
				from = " (" + v.from + ")"
			}
			return fmt.Errorf("Bad option: \"--%s\"%s.\n%w", v.flag.Name, from, err) //nolint:staticcheck // Triton's words
		}
		v.flag.note(o)
	}
	return nil
}

// Notice is a sentence about an option that the server logs once, at its start.
type Notice struct {
	Option string // the option as the user wrote it. For example: "--http-thread-count".
	Text   string
}

func (o *Options) notice(option, text string) {
	o.Notices = append(o.Notices, Notice{Option: option, Text: text})
}

// note adds the notice of a flag that was given, unless it has none.
func (f *Flag) note(o *Options) {
	var parts []string
	if f.Instead != "" {
		parts = append(parts, "deprecated, use "+f.Instead)
	}
	if f.Class == WithoutEffect {
		parts = append(parts, "accepted without effect: "+f.Why)
	}
	n := Notice{Option: "--" + f.Name, Text: strings.Join(parts, "; ")}
	if parts != nil && !slices.Contains(o.Notices, n) {
		o.Notices = append(o.Notices, n)
	}
}

// fromLine reads a command line as getopt_long does. Unlike there, the value of a flag for a bool may be missing.
func fromLine(flags []Flag, args []string) (given, error) {
	g := given{}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, text, hasText := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch {
		case arg == "-h" || arg == "-help":
			return nil, flag.ErrHelp
		case arg == "--" && len(args) > 0:
			return nil, fmt.Errorf("Unexpected argument: %s", args[0]) //nolint:staticcheck // Triton's words
		case arg == "--":
			return g, nil
		case !strings.HasPrefix(arg, "--"):
			return nil, unexpected(flags, arg)
		}
		f, err := byPrefix(flags, name)
		switch {
		case err != nil:
			return nil, err
		case f.Arg == "" && hasText:
			return nil, fmt.Errorf("option '--%s' doesn't allow an argument", f.Name)
		case f.Name == flagHelp:
			return nil, flag.ErrHelp
		case f.Arg == "":
			text = yes
		case !hasText && f.Arg == "bool" && (len(args) == 0 || strings.HasPrefix(args[0], "--")):
			text = yes // as KServe's runtimes write it: --allow-grpc --allow-http
		case !hasText && len(args) == 0:
			return nil, fmt.Errorf("option '--%s' requires an argument", f.Name)
		case !hasText:
			text, args = args[0], args[1:]
		}
		g.add(value{flag: f, text: text})
	}
	return g, nil
}

// unexpected returns the error of an argument that is no option, or that has a single dash.
func unexpected(flags []Flag, arg string) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
	if f := findFlag(flags, name); f != nil && strings.HasPrefix(arg, "-") {
		return fmt.Errorf("Unexpected argument: %s%s", arg, suggestion("--", name)) //nolint:staticcheck // Triton's words
	}
	meant := ""
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		meant = suggestion("--", flagRepository+" "+arg)
	}
	return fmt.Errorf("Unexpected argument: %s%s", arg, meant) //nolint:staticcheck // Triton's words
}

// fromEnvironment reads the variables of the flags. It ignores empty variables. A variable with a name similar to a
// flag's gives a notice; other variables with the prefix are ignored, since they may belong to other programs.
func (o *Options) fromEnvironment(flags []Flag, environ []string) given {
	g := given{}
	for _, e := range environ {
		variable, text, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(variable, envPrefix) || text == "" {
			continue
		}
		i := slices.IndexFunc(flags, func(f Flag) bool { return f.Env() == variable })
		switch {
		case i < 0:
			names := make([]string, len(flags))
			for i := range flags {
				names[i] = flags[i].Env()
			}
			if meant := config.Nearest(variable, names, typo); meant != "" {
				o.notice(variable, "no option has this environment variable"+suggestion("", meant))
			}
		case flags[i].Name != flagHelp:
			for _, part := range flags[i].split(text) {
				g.add(value{flag: &flags[i], text: part, from: "environment variable " + variable})
			}
		}
	}
	return g
}

// typo is the largest edit distance at which a name counts as misspelled.
const typo = 2

// maxConfig is the largest size in bytes of the file of --config.
const maxConfig = 1 << 20

// readConfig reads options from a YAML file: a mapping from names of flags to texts, numbers and booleans, or to
// lists of them for flags that may be repeated. For example: "http-port: 80".
func readConfig(flags []Flag, file string) (given, error) {
	data, err := readBounded(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read config file '%s': %w", file, err)
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return given{}, nil // the file has only comments
	case err != nil:
		return nil, fmt.Errorf("config file '%s': %w", file, err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("config file '%s' holds more than one document", file)
	}
	r := &configReader{flags: flags, file: file, given: given{}, lines: map[string]int{}}
	return r.given, r.mapping(doc.Content[0])
}

// readBounded reads a regular file of at most maxConfig bytes. It refuses a pipe, which may never end.
func readBounded(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("expected a file, found %s", info.Mode().Type())
	case info.Size() > maxConfig:
		return nil, fmt.Errorf("it has %d bytes, expected %d at most", info.Size(), maxConfig)
	}
	return os.ReadFile(file)
}

type configReader struct {
	flags []Flag
	file  string
	given given
	lines map[string]int // lines has the line number of each flag in the file
}

func (r *configReader) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s: %s", r.place(n), fmt.Sprintf(format, args...))
}

func (r *configReader) place(n *yaml.Node) string {
	return fmt.Sprintf("config file '%s', line %d", r.file, n.Line)
}

func (r *configReader) mapping(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return r.errorf(n, "expected a mapping of option names to values")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if err := r.entry(n.Content[i], n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (r *configReader) entry(key, val *yaml.Node) error {
	f := findFlag(r.flags, key.Value)
	switch {
	case key.Kind != yaml.ScalarNode || f == nil:
		return r.errorf(key, "there is no option '%s'%s", key.Value, suggestion("", nearest(r.flags, key.Value)))
	case f.Name == flagConfig || f.Name == flagHelp:
		return r.errorf(key, "option '%s' belongs on the command line", f.Name)
	case r.lines[f.Name] > 0:
		return r.errorf(key, "option '%s' was given in line %d already", f.Name, r.lines[f.Name])
	}
	r.lines[f.Name] = key.Line
	if val.Kind != yaml.SequenceNode {
		return r.scalar(f, val)
	}
	if !f.Many {
		return r.errorf(val, "option '%s' takes one value, found a list", f.Name)
	}
	for _, item := range val.Content {
		if err := r.scalar(f, item); err != nil {
			return err
		}
	}
	return nil
}

func (r *configReader) scalar(f *Flag, n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return r.errorf(n, "option '%s' expects a text, a number or a boolean", f.Name)
	}
	r.given.add(value{flag: f, text: n.Value, from: r.place(n)})
	return nil
}
