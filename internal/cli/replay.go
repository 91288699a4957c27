package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/replay"
	"github.com/tutti-server/tutti/internal/tracing"
)

func replayCommand() command {
	return command{
		name: "replay", usage: "CAPTURE ... --against DIR|URL [--responses] [--write-golden] [-o table|json|yaml]", summary: "Run captured requests again and compare the tensors",
		notes: `CAPTURE is a file of tutti capture, or a folder of them. The requests are sent one after another, in the order in which they
arrived. With a repository, the command serves the captured models in its own process and compares the tensors of every step. With
a server it does so if --token is the dashboard's, else it compares the responses.
The report names, for each request, the first step in the order of the graph whose tensors differ.
Numbers with a fraction may differ by --absolute + --relative * |captured|; all others must be equal.`,
		examples: []string{
			"tutti replay captures --against models",
			"tutti replay captures --against http://127.0.0.1:8000 --token-file token",
			"tutti replay captures --against grpc://127.0.0.1:8001 --absolute 0 --relative 0 -o json",
			"tutti replay captures --against models --write-golden",
		},
		run: (*program).replay,
	}
}

// replayCall is the arguments of the command replay.
type replayCall struct {
	*program
	connection
	settings  replay.Settings
	against   string
	ignore    list
	responses bool // compare responses only
	golden    bool // write golden requests
	backend   options.BackendConfig
	out       *output
	written   []string // of golden requests
	left      []string // why golden requests were not written
}

// replay runs captured requests again and prints the first step of each that differs.
func (p *program) replay(ctx context.Context, args []string) error {
	fs, a := p.flags("replay"), &replayCall{program: p, backend: options.BackendConfig{}}
	a.flags(fs)
	rest, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(rest) == 0:
		return usagef("expected the files or folders of captures: tutti replay CAPTURE ... --against DIR|URL")
	case a.against == "":
		return usagef("--against is missing, expected a repository or the URL of a server")
	case a.golden && isServer(a.against):
		return usagef("--write-golden writes into a repository, expected --against DIR, found the server '%s'", a.against)
	}
	captures, err := replay.Find(rest)
	if err != nil {
		return err
	}
	a.settings.Ignore = a.ignore
	if isServer(a.against) {
		err = a.server(ctx, captures)
	} else {
		err = a.repository(ctx, captures)
	}
	return err
}

// flags declares the flags.
func (a *replayCall) flags(fs *flag.FlagSet) {
	a.connection.flags(fs)
	bound := func(name, help string, to **float64) {
		fs.Func(name, help, func(text string) error {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil || v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("found '%s', expected a number that is not negative", text)
			}
			*to = &v
			return nil
		})
	}
	fs.StringVar(&a.against, "against", "", "repository, or URL of a server, to run the requests on: `DIR|URL`")
	bound("absolute", "largest absolute `difference` of numbers with a fraction (default 1e-5; FP16 1e-3, BF16 1e-2)", &a.settings.Absolute)
	bound("relative", "largest `difference` in relation to the captured number (default 1e-4; FP16 2e-3, BF16 1.6e-2)", &a.settings.Relative)
	fs.Var(&a.ignore, "ignore", "do not compare tensors that match this `pattern` of STEP.OUTPUT, in which * matches any text and ? a character; may be repeated")
	fs.BoolVar(&a.responses, "responses", false, "compare responses only, not the tensors of every step")
	fs.BoolVar(&a.golden, "write-golden", false, "write the requests that were equal as golden requests of their models in DIR")
	backendFlags(fs, a.backend)
	a.out = outputFlag(fs, formatTable, formatJSON, formatYAML)
}

// run replays the captures and prints the report.
func (a *replayCall) run(ctx context.Context, captures []*replay.Capture) error {
	report, err := replay.Run(ctx, captures, a.settings)
	report.Against = a.against
	printed := a.out.print(a.stdout, struct {
		*replay.Report
		Golden []string `json:"golden,omitempty"`
	}{report, a.written}, func() error { return report.Write(a.stdout) })
	for _, text := range a.left {
		fmt.Fprintf(a.stderr, "no golden request of %s\n", text)
	}
	if !a.out.machine() {
		for _, file := range a.written {
			fmt.Fprintf(a.stderr, "wrote %s\n", file)
		}
	}
	switch {
	case printed != nil || err != nil:
		return errors.Join(printed, err)
	case report.FirstError != nil && report.Equal+report.Distinct == 0:
		return fmt.Errorf("no request was replayed: %w", report.FirstError)
	case report.Distinct+report.Failed > 0:
		return errReported
	}
	return nil
}

// server replays the captures on a running server.
func (a *replayCall) server(ctx context.Context, captures []*replay.Capture) error {
	server, err := a.target([]string{a.against}, 0)
	if err != nil {
		return err
	}
	token, err := a.token()
	if err != nil {
		return err
	}
	if token == "" && os.Getenv(tokenVariable) != "" {
		token = os.Getenv(tokenVariable)
		a.given.token = token
	}
	c, err := a.dial(server)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	a.settings.Client = c
	a.settings.Explain = func(ctx context.Context, model string, err error) error { return explainModel(ctx, c, model, err) }
	if token != "" && !a.responses {
		if err := a.record(ctx, server); err != nil {
			fmt.Fprintf(a.stderr, "only responses are compared: %v\n", err)
		}
	}
	return a.explain(ctx, server, a.run(ctx, captures))
}

// record makes the server capture what is replayed. It fails if the server does not do so.
func (a *replayCall) record(ctx context.Context, server string) error {
	api, err := a.inspector(server)
	if err != nil {
		return err
	}
	r := &replayRecorder{captureSession{api: api}}
	v, err := r.start(ctx, "", tracing.NewTraceID())
	if err != nil {
		return err
	}
	a.settings.Recorder = r
	return r.stop(ctx, v)
}

// repository replays the captures on a server of a repository in this process, which serves the captured models only.
func (a *replayCall) repository(ctx context.Context, captures []*replay.Capture) (err error) {
	if info, err := os.Stat(a.against); !strings.Contains(a.against, "://") && (err != nil || !info.IsDir()) {
		return errors.Join(err, errNoFolder(a.against, err))
	}
	token := rand.Text()
	s, err := tutti.Open(ctx, tutti.Settings{Components: a.components, Args: a.options(captures, token)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := s.Start(); err != nil { //nolint:contextcheck // Close ends what Start starts, in its order
		return err
	}
	c, err := client.NewGRPC(s.GRPCAddress(), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	a.settings.Client = c
	a.settings.Explain = func(_ context.Context, model string, err error) error { return explainLocal(s, a.against, model, err) }
	if !a.responses {
		own := &connection{given: bearer{token: token}, used: true}
		api, err := own.inspector("http://" + s.HTTPAddress())
		if err != nil {
			return err
		}
		a.settings.Recorder = &replayRecorder{captureSession{api: api}}
	}
	if a.golden {
		a.settings.Equal = a.writeGolden
	}
	return a.run(ctx, captures)
}

// errNoFolder returns the error for a repository that is no folder.
func errNoFolder(path string, err error) error {
	if err != nil {
		return nil //nolint:nilerr // the other error says so
	}
	return usagef("'%s' is no folder, expected a repository or the URL of a server", path)
}

// capturedBytes is the memory for the tensors of a replayed request.
const capturedBytes = 16 << 30

// options returns the options of the server in this process.
func (a *replayCall) options(captures []*replay.Capture, token string) []string {
	args := []string{
		"--model-repository=" + a.against, "--exit-on-error=false", "--http-address=" + loopback, "--http-port=0", "--grpc-address=" + loopback, "--grpc-port=0",
		"--allow-metrics=false", "--gpu-fallback=cpu", "--exit-connection-secs=0", "--model-control-mode=explicit", "--trace-store-every=0",
		"--dashboard-token=" + token, "--capture-bytes=" + strconv.FormatInt(capturedBytes, 10), "--capture-request-bytes=" + strconv.FormatInt(capturedBytes, 10),
	}
	var models []string
	for _, c := range captures {
		if c.Err == nil && !slices.Contains(models, c.About.Model) && isModelName(c.About.Model) {
			models = append(models, c.About.Model)
			args = append(args, "--load-model="+c.About.Model)
		}
	}
	for backend, values := range a.backend {
		for key, value := range values {
			args = append(args, "--backend-config="+backend+","+key+"="+value)
		}
	}
	return args
}

// isModelName reports whether a name from a file can be that of a model: the name of a folder, and no pattern or list for --load-model.
func isModelName(name string) bool {
	return filepath.IsLocal(name) && filepath.Base(name) == name && !strings.ContainsAny(name, "*,") && !strings.ContainsFunc(name, unicode.IsControl)
}

// explainLocal returns the error of a request to a model of a repository: the reason that the model was not loaded, if it was not.
func explainLocal(s *tutti.Server, dir, model string, err error) error {
	for _, m := range s.Models() {
		if m.Name == model {
			if m.Err != nil {
				return m.Err
			}
			return err
		}
	}
	return status.Errorf(status.NotFound, "'%s' has no model '%s'", dir, model)
}
