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

	"github.com/spf13/cobra"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/core/status"
)

// program is one call of Main.
type program struct {
	name           string // the call as it was typed, for the usage of serve. For example: "tutti serve".
	components     tutti.Components
	args           []string // the whole command line
	file           string   // of the program; empty until it serves
	stdout, stderr io.Writer
	root           *cobra.Command
	described      func(*flag.FlagSet) // described, unless nil, takes the flags of a command in place of its help
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

// Main runs the command that args name, where args[0] is the name of the program. It returns the exit status: 0, or that of
// an error, which it has printed. It ends in order when ctx is done.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer, c tutti.Components) int {
	out := &sink{w: stdout}
	p := &program{name: programName(args), args: args, components: c, stdout: out, stderr: stderr}
	if p.name != tritonName {
		p.name += " serve"
	}
	err := p.main(ctx, args)
	if err == nil {
		err = out.err
	}
	var usage *usageError
	var option *tutti.OptionError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errReported):
	case ctx.Err() != nil && status.CodeOf(err) == status.Cancelled: // the user's own Ctrl-C
		return exitInterrupted
	case errors.As(err, &option):
		fmt.Fprintf(stderr, "%v\nUsage: %s [options]\nRun '%s --help' for the options.\n", err, p.name, p.name)
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s %v\nRun '%s help' for the commands, and a command with --help for its flags.\n", paint(stderr, red, "error:"), err, programName(args))
	default:
		fmt.Fprintf(stderr, "%s %v\n", paint(stderr, red, "error:"), err)
	}
	return exitStatus(err)
}

func (p *program) main(ctx context.Context, args []string) error {
	if programName(args) == tritonName {
		return p.serve(ctx, args[1:])
	}
	p.root = p.tree() //nolint:contextcheck // the commands get the context of ExecuteContext
	if args = args[min(1, len(args)):]; len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		p.declare(p.root) //nolint:contextcheck // no command runs
		plainUsage(p.root)
	}
	p.root.SetArgs(args)
	return p.root.ExecuteContext(ctx)
}

func programName(args []string) string {
	if len(args) == 0 {
		return "tutti"
	}
	return filepath.Base(args[0])
}

// find returns the command of a name, which has those of the commands above it. For example: "repo ls".
func find(name string) (found command) {
	list := commands()
	for part := range strings.FieldsSeq(name) {
		i := slices.IndexFunc(list, func(c command) bool { return c.name == part })
		if i < 0 {
			return command{}
		}
		found, list = list[i], list[i].commands
	}
	return found
}

// misused returns the error of a command that has the wrong arguments. For example, for expected "one folder":
// "expected one folder: tutti config MODEL_DIR [flags]".
func misused(name, expected string) error {
	return usagef("expected %s: tutti %s", expected, strings.TrimSpace(name+" "+find(name).usage))
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
			return nil, &usageError{explainFlag(fs, err)}
		}
		if fs.NArg() == 0 {
			return rest, selectContext(fs)
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
}

// selectContext fills in the server of the context, for a command that connects to servers.
func selectContext(fs *flag.FlagSet) error {
	if f := fs.Lookup("context"); f != nil {
		if selected, ok := f.Value.(*contextFlag); ok {
			return selected.apply(fs)
		}
	}
	return nil
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
	notes                string // notes are the paragraphs after the summary in `tutti NAME --help`
	examples             []string
	run                  func(p *program, ctx context.Context, args []string) error
	// complete returns completions of the argument after args, each with a description after a tab if it has one. Without
	// it shells complete names of files.
	complete func(p *program, c *cobra.Command, args []string) []cobra.Completion
	commands []command // commands are below this one, which then needs no run
	hidden   bool      // hidden commands are not in the help
}

// commands returns all commands.
func commands() (list []command) {
	for _, g := range groups() {
		list = append(list, g.rows...)
	}
	return list
}

// repositoryCommands are the commands that read model repositories.
func repositoryCommands() []command {
	return []command{
		{
			name: "serve", usage: "--model-repository DIR ...", summary: "Serve the models of one or more repositories", run: (*program).serve,
			examples: []string{
				"tutti serve --model-repository models",
				"tutti serve --model-repository models --model-control-mode explicit --load-model text --http-port 9000",
				"tutti serve --config tutti.yaml",
			},
		},
		{
			name: "worker", usage: "--model-repository DIR ... [--temporal-address HOST:PORT]", summary: "Run durable jobs with the models of repositories", run: (*program).work,
			examples: []string{"tutti worker --model-repository models --temporal-address temporal.example:7233"},
		},
		{
			name: "validate", usage: "DIR ... [-o text|json|yaml|sarif] [--strict] [-- OPTION ...]", summary: "Check repositories and print every problem",
			notes: "The command reads every configuration and loads the models whose runtimes are on this machine. " +
				"With the options of tutti serve behind -- it also checks these and the auth file, and says what of the server is open to whom.",
			examples: []string{"tutti validate models", "tutti validate models -- --config tutti.yaml --auth-file auth.yaml", "tutti validate --strict -o sarif models > problems.sarif"},
			run:      (*program).validate,
		},
		{
			name: "config", usage: "MODEL_DIR [-o text|json|yaml]", summary: "Print the completed configuration of a model",
			notes:    "The configuration is what a server's configuration endpoint returns: with defaults and the values from the model's file.",
			examples: []string{"tutti config models/resnet", "tutti config -o json models/resnet"},
			run:      (*program).config,
		},
		{
			name: "init", usage: "DIR [text|image|python|parallel] | DIR --model FILE [-o text|json|yaml]", summary: "Write a small repository, or one around a model file",
			notes: "With --model the repository has the model, native steps before and after it, an ensemble of them, a sample request with the model's response, " +
				"and a README. Nothing is overwritten: DIR must be new or empty.",
			examples: []string{"tutti init models", "tutti init models python", "tutti init models --model resnet50.onnx --labels imagenet.txt", "tutti init models --model minilm/onnx/model.onnx --kind embed"},
			run:      (*program).init,
		},
		importCommand(),
		{
			name: "plan", usage: "DIR NAME [--after PASS] [-o text|json|yaml|dot|svg]", summary: "Print the execution plan of an ensemble",
			examples: []string{"tutti plan models text", "tutti plan -o svg models text > text.svg", "tutti plan --after bind models text"},
			run:      (*program).plan,
		},
		tuneCommand(),
		quantizeCommand(),
	}
}

// requestCommands are the commands that send requests, or talk to servers and buckets.
func requestCommands() []command {
	return []command{
		{
			name: "infer", usage: "[--url URL] MODEL --input NAME=VALUE ... [-o json|yaml|table]", summary: "Send a request to a server and print the response",
			notes: `The response goes to stdout as JSON. Its duration, its trace id and the times of the steps go to stderr.
The times of the steps are differences of the server's statistics, and n/a if other requests ran at the same time.
--why explains the request in any case.`,
			examples: []string{
				"tutti infer chain --input X=[1,2,3]",
				"tutti infer text --input 'TEXT=some words' --why",
				"tutti infer digits --input IMAGE=@seven.png --url grpc://127.0.0.1:8001",
			},
			run: (*program).infer, complete: completeModels,
		},
		{
			name: "demo", usage: "[--once] DIR", summary: "Serve the examples in a folder and send a request to each",
			examples: []string{"tutti demo examples/ensembles"},
			run:      (*program).demo,
		},
		{
			name: "why", usage: "[--url URL] TRACE | REQUEST [-o text|json|yaml|otlp|perfetto]", summary: "Explain where the time of a request went",
			notes: "The server must have its dashboard and have stored the trace: by default it stores slow and failed requests and a sample. " +
				"-o otlp prints the spans as OTLP JSON, -o perfetto a file for ui.perfetto.dev.",
			examples: []string{"tutti why 4bf92f3577b34da6a3ce929d0e0e4736", "tutti why my-request-7", "tutti why -o json my-request-7", "tutti why -o perfetto my-request-7 > trace.json"},
			run:      (*program).why,
		},
		{
			name: "capture", usage: "[--url URL] --token TOKEN [--model M] [--count N] [--out DIR] [-o text|json|yaml]", summary: "Save the tensors of requests to a server",
			examples: []string{
				"tutti capture --token-file token --model text --count 3 --out captures",
				"tutti capture --token-file token --redact-tensor TEXT --redact-model 'private*'",
			},
			run: (*program).capture,
		},
		replayCommand(),
		{
			name: "repo", usage: "COMMAND", summary: "Inspect and change repositories and servers",
			notes: "REPO is a folder, the address of a bucket, or the URL of a server. Without it the server of the context is meant: see tutti help context.", commands: repoCommands(),
			examples: []string{
				"tutti repo diff models http://127.0.0.1:8000",
				"tutti repo push models/resnet s3://bucket/models",
				"tutti repo unload --dependents http://127.0.0.1:8000 text",
			},
		},
		{
			name: "jobs", usage: "COMMAND", summary: "Run a model over a dataset, durably",
			notes: "The server must have been started with --jobs. A job survives crashes of the server and of its workers.", commands: jobsCommands(),
			examples: []string{
				"tutti jobs submit --model text --input texts.jsonl --output results --wait",
				"tutti jobs show text-7f3a",
			},
		},
	}
}

// machineCommands are the commands about this machine and this program.
func machineCommands() []command {
	return []command{
		{
			name: "runtime", usage: "COMMAND", summary: "Fetch the native libraries of backends", commands: runtimeCommands(),
			examples: []string{"tutti runtime list", "tutti runtime fetch onnxruntime"},
		},
		{
			name: "doctor", usage: "[-o text|json|yaml] [--backend-config NAME,key=value ...] [--backend-directory DIR] [NAME ...] [-- OPTION ...]", summary: "Check that this machine has what backends need",
			notes: "Each backend opens in its own process. The command fails if a backend that NAME names does not open. " +
				"With --backend-directory it lists the libraries that are there. " +
				"It also says what of a server is open to whom: by default, with the variables of the environment, or with the options of tutti serve behind --.",
			examples: []string{"tutti doctor", "tutti doctor -- --config tutti.yaml", "tutti doctor -o json onnxruntime"},
			run:      (*program).doctor,
		},
		{
			name: "context", usage: "COMMAND", summary: "Save how to reach several servers, and select one", commands: contextCommands(),
			notes: `Commands that connect to servers use the context of --context, of the variable TUTTI_CONTEXT, or the current one, unless --url is given.
Its token, headers and certificates go to its own server only, and where --context is given.
The contexts are in $XDG_CONFIG_HOME/tutti/contexts.yaml, by default in ~/.config, which only you may read.`,
			examples: []string{
				"tutti context add prod --url https://models.example:8000 --cacert ca.pem --token-file token",
				"tutti context use prod",
				"tutti infer text --input 'TEXT=some words' --context prod",
			},
		},
		{
			name: "completion", usage: "bash|zsh|fish", summary: "Print the completion script of a shell",
			notes: `The script completes commands, flags and names, for example those of the models of a server. To load it in each new shell:
  bash  tutti completion bash > ~/.local/share/bash-completion/completions/tutti
  zsh   tutti completion zsh > "${fpath[1]}/_tutti"
  fish  tutti completion fish > ~/.config/fish/completions/tutti.fish`,
			examples: []string{"tutti completion bash", "tutti completion zsh > _tutti"},
			run:      (*program).completion, complete: completeShells,
		},
		{
			name: "version", usage: "[-o text|json|yaml]", summary: "Print the version, the commit and the platform of this program",
			notes:    "The commit and its date are those of the checkout that the program was built in; tutti --version prints the same.",
			examples: []string{"tutti version", "tutti version -o json"},
			run:      (*program).version,
		},
	}
}
