package options

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
)

// Parse reads the options of serve from the command line without the program's name, the environment as os.Environ
// returns it, and the file of --config. It returns flag.ErrHelp if the command line asks for help.
func Parse(args, environ []string) (*Options, error) {
	flags := Flags()
	line, err := fromLine(flags, args)
	if err != nil {
		return nil, err
	}
	o := Default()
	sources := []given{line, fromEnvironment(flags, environ, &o.Notices)}
	if file := configFile(sources); file != "" {
		fromFile, err := readConfig(flags, file)
		if err != nil {
			return nil, err
		}
		sources = append(sources, fromFile)
	}
	if err := o.apply(flags, sources); err != nil {
		return nil, err
	}
	return &o, o.finish(environ)
}

// value is one value of a flag with its source.
type value struct {
	flag *Flag
	text string
	// from names the source in errors; empty for the command line.
	from string
}

// bad returns the error of an invalid value, in Triton's form.
func (v *value) bad(err error) error {
	from := ""
	if v.from != "" {
		from = " (" + v.from + ")"
	}
	return fmt.Errorf("Bad option: \"--%s\"%s.\n%w", v.flag.Name, from, err) //nolint:staticcheck // Triton's words
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
		if err := v.flag.set(o, v.text); err != nil {
			return v.bad(err)
		}
		if n := noticeOf(v.flag); n != nil && !slices.Contains(o.Notices, *n) {
			o.Notices = append(o.Notices, *n)
		}
	}
	return nil
}

// Notice is a sentence about an option that the server logs once, at its start.
type Notice struct {
	// Option is the option as the user wrote it. For example: "--http-thread-count".
	Option string
	Text   string
}

// noticeOf returns the notice of a flag that was given, or nil.
func noticeOf(f *Flag) *Notice {
	var parts []string
	if f.Instead != "" {
		parts = append(parts, "deprecated, use "+f.Instead)
	}
	if f.Class == WithoutEffect {
		parts = append(parts, "accepted without effect: "+f.Why)
	}
	if parts == nil {
		return nil
	}
	return &Notice{Option: "--" + f.Name, Text: strings.Join(parts, "; ")}
}

// fromLine reads a command line as getopt_long does.
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
func fromEnvironment(flags []Flag, environ []string, notices *[]Notice) given {
	g := given{}
	for _, e := range environ {
		variable, text, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(variable, envPrefix) || text == "" {
			continue
		}
		i := slices.IndexFunc(flags, func(f Flag) bool { return f.Env() == variable })
		switch {
		case i < 0:
			if n := misspelt(flags, variable); n != nil {
				*notices = append(*notices, *n)
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

func misspelt(flags []Flag, variable string) *Notice {
	names := make([]string, len(flags))
	for i := range flags {
		names[i] = flags[i].Env()
	}
	meant := config.Nearest(variable, names, typo)
	if meant == "" {
		return nil
	}
	return &Notice{Option: variable, Text: "no option has this environment variable" + suggestion("", meant)}
}

// configFile returns the file of --config from the source with the highest precedence, empty for none.
func configFile(sources []given) string {
	if list := nearestSource(sources, flagConfig); len(list) > 0 {
		return list[len(list)-1].text
	}
	return ""
}
