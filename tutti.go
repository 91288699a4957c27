package tutti

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/steps"
)

// Version is the program's own.
const Version = "0.1.0"

// Components are what a program is built from.
type Components struct {
	// Steps are what the native backend can run.
	Steps []steps.Factory
	// Backends returns those that run models, given the steps for the native one.
	Backends func(*steps.Registry) []backends.Factory

	_ struct{}
}

// registry puts the components together.
func (c *Components) registry() (*backends.Registry, error) {
	known, err := steps.NewRegistry(c.Steps...)
	if err != nil {
		return nil, err
	}
	return backends.NewRegistry(c.Backends(known)...)
}

// program is one call of Main.
type program struct {
	// name is how the program was called, as its usage says.
	name           string
	components     Components
	stdout, stderr io.Writer
}

// command is one word that may follow the program's name.
type command struct {
	name, args, summary string
	run                 func(p *program, ctx context.Context, args []string) error
}

func commands() []command {
	return []command{
		{"serve", "--model-repository DIR ...", "Serve the models of one or more repositories", (*program).serve},
		{"validate", validateUsage, "Tell every problem of repositories", (*program).validate},
		{"config", configUsage, "Print a model's configuration with all that is filled in", (*program).config},
		{"init", initUsage, "Write a repository to start from", (*program).starter},
		{"plan", planUsage, "Print what an ensemble is compiled to", (*program).plan},
		{"infer", inferUsage, "Ask a running server", (*program).infer},
		{"demo", "[--once] DIR", "Serve the examples below a folder and ask each", (*program).demo},
		{"why", whyUsage, "Tell what the time of a request went into", (*program).why},
		{"capture", captureUsage, "Save the tensors of requests to a running server", (*program).capture},
		{"repo", "ls | show | diff | push | load | unload", "Look at repositories and servers, and change them", (*program).repo},
		{"runtime", "fetch NAME | list", "Fetch the native libraries that backends open", (*program).runtime},
		{"doctor", doctorUsage, "Tell what this machine has of what backends need", (*program).doctor},
		{"version", "", "Print the version", (*program).version},
	}
}

// tritonName is the program name under which every argument belongs to serve, so
// that an existing container entry point keeps working.
const tritonName = "tritonserver"

// usageError is a command line that cannot be understood; the usage was printed.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// optionError is an option of serve that cannot be taken, in Triton's words.
type optionError struct{ err error }

func (e *optionError) Error() string { return e.err.Error() }
func (e *optionError) Unwrap() error { return e.err }

// errReported ends the program with a failure that was already told.
var errReported = errors.New("failed")

// Main runs the command that args name (args[0] is the program's own name) and
// returns the exit status: 0, or 1 after a failure, which it has printed. It ends
// early, in good order, when ctx is over.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer, c Components) int {
	p := &program{name: serverName(args), components: c, stdout: stdout, stderr: stderr}
	err := p.main(ctx, args)
	var usage *usageError
	var option *optionError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errReported):
	case errors.As(err, &option):
		fmt.Fprintf(stderr, "%v\nUsage: %s [options]\nRun '%s --help' for the options.\n", err, p.name, p.name)
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "error: %v\nRun '%s help' for the commands, and a command with --help for its flags.\n", err, name(args))
	default:
		fmt.Fprintf(stderr, "error: %v\n", err)
	}
	return 1
}

func (p *program) main(ctx context.Context, args []string) error {
	if name(args) == tritonName {
		return p.serve(ctx, args[1:])
	}
	if len(args) < 2 {
		help(p.stderr)
		return errReported
	}
	switch args[1] {
	case "help", "--help", "-help", "-h":
		help(p.stdout)
		return nil
	}
	for _, c := range commands() {
		if c.name == args[1] {
			return c.run(p, ctx, args[2:])
		}
	}
	return usagef("there is no command '%s'", args[1])
}

// serverName is what to type to serve.
func serverName(args []string) string {
	if name(args) == tritonName {
		return tritonName
	}
	return name(args) + " serve"
}

func name(args []string) string {
	if len(args) == 0 {
		return "tutti"
	}
	return filepath.Base(args[0])
}

func help(w io.Writer) {
	var b strings.Builder
	b.WriteString("Tutti serves models and the ensembles made of them.\n\nUsage:\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  tutti %-56s %s\n", strings.TrimSpace(c.name+" "+c.args), c.summary)
	}
	b.WriteString("\nA command with --help prints its flags.\n")
	_, _ = io.WriteString(w, b.String())
}

func (p *program) version(_ context.Context, _ []string) error {
	_, err := fmt.Fprintf(p.stdout, "tutti %s\n", Version)
	return err
}

// flags returns an empty flag set for a command that prints its usage to stderr.
func (p *program) flags(command, args string) *flag.FlagSet {
	fs := flag.NewFlagSet("tutti "+command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {
		fmt.Fprintf(p.stdout, "Usage: tutti %s %s\n", command, args)
		fs.SetOutput(p.stdout)
		fs.PrintDefaults()
		fs.SetOutput(io.Discard)
	}
	return fs
}

// parse reads flags and other arguments in any order and returns the others.
func parse(fs *flag.FlagSet, args []string) ([]string, error) {
	quiet, asked := fs.Usage, false
	fs.Usage = func() { asked = true }
	defer func() { fs.Usage = quiet }()
	var rest []string
	for {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) && asked {
			quiet()
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

// serverError is what Triton prints when it cannot start.
func serverError(err error) error {
	if e, ok := errors.AsType[*startError](err); ok {
		return e
	}
	return fmt.Errorf("creating server: %s - %w", status.CodeOf(err), err)
}
