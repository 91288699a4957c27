package cli

import (
	"context"
	"slices"
)

// command is a row of commands.
type command struct {
	// name, usage and summary make a line of `tutti help`; the summary is a sentence without its period.
	name, usage, summary string
	// notes follow the flags in `tutti NAME --help`, before the examples.
	notes    string
	examples []string
	run      func(p *program, ctx context.Context, args []string) error
}

// commands returns the commands in the order of `tutti help`.
func commands() []command {
	return slices.Concat(repositoryCommands(), requestCommands(), machineCommands())
}

// repositoryCommands are the commands that read model repositories.
func repositoryCommands() []command {
	return []command{
		{
			name: "serve", usage: "--model-repository DIR ...", summary: "Serve the models of one or more repositories",
			run: (*program).serve,
		},
		{
			name: "validate", usage: "DIR ... [--format text|json|sarif] [--strict]", summary: "Check repositories and print every problem",
			notes: "The command reads every configuration and loads the models whose runtimes are on this machine.",
			examples: []string{
				"tutti validate models",
				"tutti validate --strict --format sarif models > problems.sarif",
			},
			run: (*program).validate,
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
	}
}

// machineCommands are the commands about this machine and this program.
func machineCommands() []command {
	return []command{
		{
			name: "runtime", usage: "fetch [--dir DIR] NAME | list", summary: "Fetch the native libraries of backends",
			examples: []string{"tutti runtime list", "tutti runtime fetch onnxruntime"},
			run:      (*program).runtime,
		},
		{
			name: "doctor", usage: "[--format text|json] [--backend-config NAME,key=value ...] [NAME ...]", summary: "Check that this machine has what backends need",
			notes:    "Each backend opens in its own process. The command fails if a backend that NAME names does not open.",
			examples: []string{"tutti doctor", "tutti doctor --format json onnxruntime"},
			run:      (*program).doctor,
		},
		{name: "version", summary: "Print the version", run: (*program).version},
	}
}
