// Package cli is the command line of tutti. Each command has a file of its name, and a row in commands from which its help
// and docs/cli.md are made.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti"
)

// program is one call of Main.
type program struct {
	// name is the call as it was typed, for the usage of serve. For example: "tutti serve".
	name           string
	components     tutti.Components
	stdout, stderr io.Writer
}

// tritonName is the program name under which all arguments belong to serve, so that the entry point of a container for
// Triton keeps working.
const tritonName = "tritonserver"

// usageError is an error in the arguments of a command.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errReported makes the exit status 1 after a failure that was printed already.
var errReported = errors.New("failed")

// Main runs the command that args name, where args[0] is the name of the program. It returns the exit status: 0, or 1
// after an error, which it has printed. It ends in order when ctx is done.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer, c tutti.Components) int {
	p := &program{name: serverName(args), components: c, stdout: stdout, stderr: stderr}
	err := p.main(ctx, args)
	var usage *usageError
	var option *tutti.OptionError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errReported):
	case errors.As(err, &option):
		fmt.Fprintf(stderr, "%v\nUsage: %s [options]\nRun '%s --help' for the options.\n", err, p.name, p.name)
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "error: %v\nRun '%s help' for the commands, and a command with --help for its flags.\n", err, programName(args))
	default:
		fmt.Fprintf(stderr, "error: %v\n", err)
	}
	return 1
}

func (p *program) main(ctx context.Context, args []string) error {
	if programName(args) == tritonName {
		return p.serve(ctx, args[1:])
	}
	if len(args) < 2 {
		help(p.stderr)
		return errReported
	}
	switch args[1] {
	case "help", "--help", "-help", "-h":
		if len(args) == 2 {
			help(p.stdout)
			return nil
		}
		args = []string{args[0], args[2], "--help"}
	}
	for _, c := range commands() {
		if c.name == args[1] {
			return c.run(p, ctx, args[2:])
		}
	}
	return usagef("there is no command '%s'", args[1])
}

// serverName is the command line that serves.
func serverName(args []string) string {
	if programName(args) == tritonName {
		return tritonName
	}
	return programName(args) + " serve"
}

func programName(args []string) string {
	if len(args) == 0 {
		return "tutti"
	}
	return filepath.Base(args[0])
}

// help prints the commands.
func help(w io.Writer) {
	var b strings.Builder
	b.WriteString("Tutti serves models and the ensembles made of them.\n\nUsage:\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  tutti %-56s %s\n", strings.TrimSpace(c.name+" "+c.usage), c.summary)
	}
	b.WriteString("\nA command with --help prints its flags.\n")
	_, _ = io.WriteString(w, b.String())
}

// flags returns the flag set of a command, whose --help prints the row of the command in commands and the flags.
func (p *program) flags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet("tutti "+name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c := find(name)
	fs.Usage = func() {
		fmt.Fprintf(p.stdout, "%s.\n\nUsage: tutti %s %s\n", c.summary, c.name, c.usage)
		fs.SetOutput(p.stdout)
		fs.PrintDefaults()
		fs.SetOutput(io.Discard)
		if c.notes != "" {
			fmt.Fprintf(p.stdout, "\n%s\n", c.notes)
		}
		if len(c.examples) > 0 {
			fmt.Fprintf(p.stdout, "\nExamples:\n  %s\n", strings.Join(c.examples, "\n  "))
		}
	}
	return fs
}

// find returns the command of a name.
func find(name string) (found command) {
	for _, c := range commands() {
		if c.name == name {
			found = c
		}
	}
	return found
}

// misused returns the error of a command that has the wrong arguments. For example, for expected "one folder":
// "expected one folder: tutti config MODEL_DIR [flags]".
func misused(name, expected string) error {
	return usagef("expected %s: tutti %s %s", expected, name, find(name).usage)
}

// parse reads flags and other arguments in any order and returns the others.
func parse(fs *flag.FlagSet, args []string) ([]string, error) {
	usage, wanted := fs.Usage, false
	fs.Usage = func() { wanted = true }
	defer func() { fs.Usage = usage }()
	var rest []string
	for {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) && wanted {
			usage()
			return nil, err
		} else if err != nil {
			return nil, &usageError{err}
		}
		if fs.NArg() == 0 {
			return rest, nil
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

// Set adds a value.
func (l *list) Set(s string) error {
	if s == "" {
		return errors.New("expected a value, got none")
	}
	*l = append(*l, s)
	return nil
}
