package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/table"
)

// serve runs a server until ctx is done or a service fails.
func (p *program) serve(ctx context.Context, args []string) error {
	return p.runServer(ctx, args, false)
}

// work runs a server for durable jobs only.
func (p *program) work(ctx context.Context, args []string) error {
	p.name = strings.TrimSuffix(p.name, " serve") + " worker"
	return p.runServer(ctx, args, true)
}

func (p *program) runServer(ctx context.Context, args []string, worker bool) error {
	if slices.Contains(args, options.FullHelp) {
		options.Help(p.stdout, p.name)
		return nil
	}
	// Garbage collections are rarer unless GOGC is set. Tensors are not on the Go heap, which therefore is small: with the
	// default the collector takes a twentieth of the CPU time of small requests.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	// By default SIGPIPE would end the server with the reader of its log, and SIGXFSZ when a file, for example that of its traces,
	// reaches a limit on the size of files (ulimit -f). The write fails instead.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ)
	sockets, err := activated()
	if err != nil {
		return &failure{exitFailure, err}
	}
	p.file, _ = os.Executable() // before the file is replaced; empty if it is not known, which Upgrade reports
	s, err := tutti.Open(ctx, tutti.Settings{
		Args: args, Env: os.Environ(), Worker: worker, Components: p.components, Listeners: sockets, Stdout: original(p.stdout), Stderr: p.stderr,
	})
	if errors.Is(err, flag.ErrHelp) {
		switch {
		case p.name == tritonName:
			options.Help(p.stdout, p.name)
		case worker:
			p.serverHelp(p.name, "worker")
		default:
			p.serverHelp(p.name, "serve")
		}
		return nil
	}
	if err != nil {
		return &failure{exitFailure, err} // as tritonserver
	}
	if err = s.Start(); err == nil { //nolint:contextcheck // Close ends what Start starts, in its order
		err = p.supervise(ctx, s)
	}
	if err = errors.Join(err, s.Close(ctx)); err != nil {
		return &failure{exitFailure, err}
	}
	return nil
}

// heapGrowth is the value of GOGC for a server.
const heapGrowth = 400

// demo serves the examples below a folder, sends a request to each ensemble, checks the responses, and keeps serving.
func (p *program) demo(ctx context.Context, args []string) (err error) {
	fs := p.flags("demo")
	once := fs.Bool("once", false, "exit after the responses")
	verbose := fs.Bool("verbose", false, "print the server's log")
	rest, err := arguments(fs, args, 1, 1, "one folder of model repositories")
	if err != nil {
		return err
	}
	d := &demonstration{program: p}
	if err := d.find(rest[0]); err != nil {
		return err
	}
	jobs, err := d.prepareJobs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.folder)) }() // after the server has ended
	if d.s, err = tutti.Open(ctx, tutti.Settings{Args: append(d.args(ctx, *verbose), jobs...), Components: p.components, Stdout: p.stderr, Stderr: p.stderr}); err != nil {
		return err
	}
	return errors.Join(d.run(ctx, *once), d.s.Close(ctx))
}

// demonstration is one run of the command demo.
type demonstration struct {
	*program

	roots    []string
	s        *tutti.Server
	examples []Example // one of each ensemble
	wrong    int
	folder   string // of jobs; empty without the Temporal server
}

func (d *demonstration) say(format string, args ...any) { fmt.Fprintf(d.stdout, format+"\n", args...) }

// args returns the options of the server.
func (d *demonstration) args(ctx context.Context, verbose bool) []string {
	args := []string{"--exit-on-error=false", "--log-info=" + strconv.FormatBool(verbose)}
	if verbose {
		args = append(args, "--log-verbose=1")
	}
	for _, root := range d.roots {
		args = append(args, "--model-repository="+root)
	}
	o := options.Default()
	for _, e := range []struct {
		name string
		port int
	}{{"http", o.HTTP.Port}, {"grpc", o.GRPC.Port}, {"metrics", o.Metrics.Port}} {
		args = append(args, fmt.Sprintf("--%s-address=%s", e.name, loopback), fmt.Sprintf("--%s-port=%d", e.name, d.freePort(ctx, e.port)))
	}
	return args
}

// find adds the repositories below dir that are complete.
func (d *demonstration) find(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	registry, err := d.components.Registry()
	if err != nil {
		return err
	}
	for _, e := range entries {
		root := filepath.Join(dir, e.Name())
		models, err := filepath.Glob(filepath.Join(root, "*", config.FileName))
		if err != nil || len(models) == 0 {
			continue
		}
		if reason := lacking(registry, models); reason != "" {
			d.say("The example %s is left out: %s.", e.Name(), reason)
			continue
		}
		list, err := ReadExamples(root)
		if err != nil {
			return err
		}
		d.roots = append(d.roots, root)
		had := len(d.examples)
		for _, e := range list { // one of each ensemble
			if !slices.ContainsFunc(d.examples[had:], func(k Example) bool { return k.Request.Model == e.Request.Model }) {
				d.examples = append(d.examples, e)
			}
		}
	}
	if len(d.roots) == 0 {
		return fmt.Errorf("no complete model repository is below '%s'", dir)
	}
	return nil
}

// lacking returns the reason that models cannot be served here, empty if they can: a missing file or runtime.
func lacking(registry *backends.Registry, configs []string) string {
	if missing := missingFile(registry, configs); missing != "" {
		return missing + " is missing ('make examples' fetches and converts it)"
	}
	for _, path := range configs {
		cfg, err := config.Load(filepath.Dir(path))
		f := registry.ByName(cfg.GetBackend())
		if err != nil || f == nil || f.Name != pythonName {
			continue
		}
		b, err := f.New(backends.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err.Error()
		}
		if c, ok := b.(backends.Checker); ok {
			err = c.Check()
		}
		if err = errors.Join(err, b.Close()); err != nil {
			return err.Error()
		}
	}
	return ""
}

// missingFile returns the first missing model file of the models with the given configurations. Loading the models
// shows other problems.
func missingFile(registry *backends.Registry, configs []string) string {
	for _, path := range configs {
		cfg, err := config.Load(filepath.Dir(path))
		if err != nil || config.Normalise(cfg, filepath.Base(filepath.Dir(path))) != nil {
			continue
		}
		f := registry.ByName(cfg.GetBackend())
		if cfg.GetBackend() == "" {
			f = registry.ByPlatform(cfg.GetPlatform())
		}
		name := cfg.GetDefaultModelFilename()
		if f != nil && name == "" {
			name = f.DefaultFile
		}
		if f == nil || name == "" {
			continue
		}
		if found, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*", name)); len(found) == 0 {
			return filepath.Join(filepath.Dir(path), "1", name)
		}
	}
	return ""
}

const (
	// titleHTTP is the protocol for which the response of an example is printed in full.
	titleHTTP = "HTTP"
	// loopback is the address of the demonstration's server.
	loopback = "127.0.0.1"
)

// freePort returns port, or 0, which lets the system choose one, if port is in use.
func (d *demonstration) freePort(ctx context.Context, port int) int {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		d.say("Port %d is taken; a free one is used instead.", port)
		return 0
	}
	_ = l.Close()
	return port
}

func (d *demonstration) run(ctx context.Context, once bool) error {
	models := d.s.Models()
	for _, m := range models {
		if m.Err != nil {
			return fmt.Errorf("model '%s' is unavailable: %w", m.Name, m.Err)
		}
	}
	if err := d.s.Start(); err != nil { //nolint:contextcheck // Close ends what Start starts, in its order
		return err
	}
	d.say("Serving %d models of %s.\n", len(models), strings.Join(d.roots, ", "))
	for i := range d.examples {
		if err := d.show(ctx, &d.examples[i]); err != nil {
			return err
		}
	}
	if d.wrong > 0 {
		return fmt.Errorf("%d responses are not as expected", d.wrong)
	}
	if err := d.showJob(ctx); err != nil {
		return err
	}
	d.say("HTTP     http://%s\ngRPC     grpc://%s\nmetrics  http://%s/metrics\n", d.s.HTTPAddress(), d.s.GRPCAddress(), d.s.MetricsAddress())
	if path := d.s.DashboardPath(); path != "" {
		d.say("See it:\nhttp://%s%s\n", d.s.HTTPAddress(), path)
	}
	d.say("Try it:\n%s\n", d.curl())
	if once {
		return nil
	}
	d.say("Serving until Ctrl-C.")
	return d.s.Wait(ctx)
}

// show sends one example over both protocols and prints the responses.
func (d *demonstration) show(ctx context.Context, e *Example) error {
	d.say("== %s", e.Request.Model)
	for i := range e.Request.Inputs {
		d.say("   input   %s %s", e.Request.Inputs[i].Name, abbreviate(&e.Request.Inputs[i]))
	}
	for _, way := range [][2]string{{titleHTTP, "http://" + d.s.HTTPAddress()}, {"gRPC", "grpc://" + d.s.GRPCAddress()}} {
		c, err := client.Dial(way[1])
		if err != nil {
			return err
		}
		// The first request allocates memory; the second shows the usual times.
		if _, err = c.Infer(ctx, &e.Request); err == nil {
			err = d.showAnswer(ctx, c, e, way[0])
		}
		if err := errors.Join(err, c.Close()); err != nil {
			return fmt.Errorf("example '%s' over %s: %w", e.Name, way[0], err)
		}
	}
	d.say("")
	return nil
}

func (d *demonstration) showAnswer(ctx context.Context, c client.Client, e *Example, title string) error {
	t, err := timedInfer(ctx, c, &e.Request)
	if err != nil {
		return err
	}
	if title == titleHTTP {
		for i := range t.resp.Outputs {
			d.say("   answer  %s %s", t.resp.Outputs[i].Name, abbreviate(&t.resp.Outputs[i]))
		}
	}
	verdict := "as expected"
	if err := e.Check(t.resp); err != nil {
		d.wrong++
		verdict = "WRONG: " + err.Error()
	}
	d.say("   over %s in %s, %s", title, micros(t.took), verdict)
	table.Right(d.stdout, "      ", t.rows(e.Request.Model, planOrder(ctx, c, e.Request.Model)))
	return nil
}

// curl returns a command that sends the first example whose inputs JSON can hold.
func (d *demonstration) curl() string {
	for _, e := range d.examples {
		inputs := make([]*client.Tensor, len(e.Request.Inputs))
		for i := range inputs {
			inputs[i] = &e.Request.Inputs[i]
		}
		if body, err := json.Marshal(map[string]any{"inputs": inputs}); err == nil {
			return fmt.Sprintf("curl -s http://%s/v2/models/%s/infer -d '%s'", d.s.HTTPAddress(), e.Request.Model,
				strings.ReplaceAll(string(body), "'", `'\''`))
		}
	}
	return "curl -s http://" + d.s.HTTPAddress() + "/v2"
}
