// Package cli is the command line of tutti. Each command is a method of program, and a row in commands from which its help
// and docs/cli.md are made.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti"
)

// program is one call of Main.
type program struct {
	name           string // the call as it was typed, for the usage of serve. For example: "tutti serve".
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
	p := &program{name: programName(args), components: c, stdout: stdout, stderr: stderr}
	if p.name != tritonName {
		p.name += " serve"
	}
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
	if slices.Contains([]string{"help", "--help", "-help", "-h"}, args[1]) {
		if len(args) == 2 {
			help(p.stdout)
			return nil
		}
		args = []string{args[0], args[2], "--help"}
	}
	name := args[1]
	if slices.Contains([]string{"--version", "-version", "-v"}, name) {
		name = "version"
	}
	if c := find(name); c.run != nil {
		return c.run(p, ctx, args[2:])
	}
	return usagef("there is no command '%s'", name)
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

// arguments is parse for a command with least to most arguments besides flags; expected names them in the error.
func arguments(fs *flag.FlagSet, args []string, least, most int, expected string) ([]string, error) {
	rest, err := parse(fs, args)
	if err == nil && (len(rest) < least || len(rest) > most) {
		err = misused(strings.TrimPrefix(fs.Name(), "tutti "), expected)
	}
	return rest, err
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

// command is a row of commands.
type command struct {
	// name, usage and summary make a line of `tutti help`; the summary is a sentence without its period.
	name, usage, summary string
	notes                string // notes follow the flags in `tutti NAME --help`, before the examples
	examples             []string
	run                  func(p *program, ctx context.Context, args []string) error
}

// commands returns the commands in the order of `tutti help`.
func commands() []command {
	return slices.Concat(repositoryCommands(), requestCommands(), machineCommands())
}

// repositoryCommands are the commands that read model repositories.
func repositoryCommands() []command {
	return []command{
		{
			name: "serve", usage: "--model-repository DIR ...", summary: "Serve the models of one or more repositories", run: (*program).serve,
		},
		{
			name: "worker", usage: "--model-repository DIR ... [--temporal-address HOST:PORT]", summary: "Run durable jobs with the models of repositories", run: (*program).work,
		},
		{
			name: "validate", usage: "DIR ... [--format text|json|sarif] [--strict]", summary: "Check repositories and print every problem",
			notes:    "The command reads every configuration and loads the models whose runtimes are on this machine.",
			examples: []string{"tutti validate models", "tutti validate --strict --format sarif models > problems.sarif"},
			run:      (*program).validate,
		},
		{
			name: "config", usage: "MODEL_DIR [--format text|json]", summary: "Print the completed configuration of a model",
			notes:    "The configuration is what a server's configuration endpoint returns: with defaults and the values from the model's file.",
			examples: []string{"tutti config models/resnet", "tutti config --format json models/resnet"},
			run:      (*program).config,
		},
		{
			name: "init", usage: "DIR [text|image|python|parallel]", summary: "Write a small repository to start from",
			examples: []string{"tutti init models", "tutti init models python"},
			run:      (*program).init,
		},
		{
			name: "plan", usage: "DIR NAME [--after PASS] [--format text|dot|svg]", summary: "Print the execution plan of an ensemble",
			examples: []string{"tutti plan models text", "tutti plan --format svg models text > text.svg", "tutti plan --after bind models text"},
			run:      (*program).plan,
		},
	}
}

// requestCommands are the commands that send requests, or talk to servers and buckets.
func requestCommands() []command {
	return []command{
		{
			name: "infer", usage: "[--url URL] MODEL --input NAME=VALUE ...", summary: "Send a request to a server and print the response",
			notes: `The response goes to stdout as JSON. Its duration, its trace id and the times of the steps go to stderr.
The times of the steps are differences of the server's statistics, and n/a if other requests ran at the same time.
--why explains the request in any case.`,
			examples: []string{
				"tutti infer chain --input X=[1,2,3]",
				"tutti infer text --input 'TEXT=some words' --why",
				"tutti infer digits --input IMAGE=@seven.png --url grpc://127.0.0.1:8001",
			},
			run: (*program).infer,
		},
		{
			name: "demo", usage: "[--once] DIR", summary: "Serve the examples in a folder and send a request to each",
			examples: []string{"tutti demo examples/ensembles"},
			run:      (*program).demo,
		},
		{
			name: "why", usage: "[--url URL] TRACE | REQUEST", summary: "Explain where the time of a request went",
			notes:    "The server must have its dashboard and have stored the trace: by default it stores slow and failed requests and a sample.",
			examples: []string{"tutti why 4bf92f3577b34da6a3ce929d0e0e4736", "tutti why my-request-7"},
			run:      (*program).why,
		},
		{
			name: "capture", usage: "[--url URL] --token TOKEN [--model M] [--count N] [--out DIR]", summary: "Save the tensors of requests to a server",
			examples: []string{
				"tutti capture --token-file token --model text --count 3 --out captures",
				"tutti capture --token-file token --redact-tensor TEXT --redact-model 'private*'",
			},
			run: (*program).capture,
		},
		{
			name: "repo", usage: "ls | show | diff | push | load | unload", summary: "Inspect and change repositories and servers",
			notes: `REPO is a folder, the address of a bucket, or the URL of a server:
  tutti repo ls REPO                     list the models, with their state if REPO is a server
  tutti repo show REPO MODEL             print the versions and the completed configuration of a model
  tutti repo diff REPO REPO [MODEL ...]  compare the models of two repositories
  tutti repo push MODEL_DIR REPO         copy a model into a folder or bucket
  tutti repo load URL MODEL              load a model into a server
  tutti repo unload URL MODEL            unload a model from a server`,
			examples: []string{
				"tutti repo diff models http://127.0.0.1:8000",
				"tutti repo push models/resnet s3://bucket/models",
				"tutti repo unload --dependents http://127.0.0.1:8000 text",
			},
			run: (*program).repo,
		},
		{
			name: "jobs", usage: "submit | list | show | wait | pause | resume | cancel | retry | result | failures", summary: "Run a model over a dataset, durably",
			notes: `The server must have been started with --jobs. A job survives crashes of the server and of its workers:
  tutti jobs submit --model M --input DATASET --output FOLDER  start a job and print its name
  tutti jobs list                                              list the jobs, the latest first
  tutti jobs show JOB                                          print state, progress and problems of a job
  tutti jobs wait JOB                                          wait for its end and show its progress; fails unless it completes
  tutti jobs pause JOB, resume JOB, cancel JOB                 change its state
  tutti jobs retry JOB                                         submit it again: only rows without a result are executed
  tutti jobs result JOB                                        print the files with the results
  tutti jobs failures JOB                                      print the failed rows with their errors`,
			examples: []string{
				"tutti jobs submit --model text --input texts.jsonl --output results --wait",
				"tutti jobs submit --model text --input 's3://bucket/texts/*.parquet' --output s3://bucket/results --column TEXT=body --keep id",
				"tutti jobs show text-7f3a",
			},
			run: (*program).jobs,
		},
	}
}

// machineCommands are the commands about this machine and this program.
func machineCommands() []command {
	return []command{
		{
			name: "runtime", usage: "fetch [--dir DIR] NAME | list | prepare NAME LIBRARY", summary: "Fetch the native libraries of backends",
			notes:    "prepare completes a library that is on the machine already. For example, it compiles PyTorch's shim beside libtorch_cpu.so.",
			examples: []string{"tutti runtime list", "tutti runtime fetch onnxruntime"},
			run:      (*program).runtime,
		},
		{
			name: "doctor", usage: "[--format text|json] [--backend-config NAME,key=value ...] [NAME ...]", summary: "Check that this machine has what backends need",
			notes:    "Each backend opens in its own process. The command fails if a backend that NAME names does not open.",
			examples: []string{"tutti doctor", "tutti doctor --format json onnxruntime"},
			run:      (*program).doctor,
		},
		{
			name: "version", usage: "[--format text|json]", summary: "Print the version, the commit and the platform of this program",
			notes:    "The commit and its date are those of the checkout that the program was built in; tutti --version prints the same.",
			examples: []string{"tutti version", "tutti version --format json"},
			run:      (*program).version,
		},
	}
}
