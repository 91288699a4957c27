package tutti

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/server/web"
)

// demo serves the examples below a folder, sends requests through each ensemble,
// checks the answers, and keeps serving.
func (p *program) demo(ctx context.Context, args []string) error {
	fs := p.flags("demo", "[--once] DIR")
	once := fs.Bool("once", false, "end after the answers")
	verbose := fs.Bool("verbose", false, "print the server's log")
	rest, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(rest) != 1:
		return usagef("expected one folder of model repositories, got %d", len(rest))
	}
	d := &showing{program: p, o: options.Default()}
	if err := d.find(rest[0]); err != nil {
		return err
	}
	d.choosePorts(ctx)
	if d.o.Log.Info = *verbose; *verbose {
		d.o.Log.Verbose = 1
	}
	journal, err := logs.New(d.o.Log, p.stderr, p.stderr)
	if err != nil {
		return err
	}
	if d.s, err = open(ctx, &d.o, &p.components, journal); err != nil {
		return err
	}
	err = d.run(ctx, *once)
	return errors.Join(err, d.s.close(ctx))
}

// showing is one showing of the examples.
type showing struct {
	*program
	o        options.Options
	s        *server
	examples []Example // one of each ensemble
	wrong    int
}

func (d *showing) say(format string, args ...any) { fmt.Fprintf(d.stdout, format+"\n", args...) }

// find takes the repositories below dir whose models are all there.
func (d *showing) find(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	registry, err := d.components.registry()
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
		d.o.Repositories = append(d.o.Repositories, root)
		d.examples = append(d.examples, firstOfEach(list)...)
	}
	if len(d.o.Repositories) == 0 {
		return fmt.Errorf("no complete model repository is below '%s'", dir)
	}
	return nil
}

// lacking says why models cannot be served here, if so: a file is not there, or not what the backend python runs.
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

// missingFile returns the first model file that is not there, of the models with the
// given configurations; what else is wrong with a model shows when it is loaded.
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

// firstOfEach keeps one example of each ensemble.
func firstOfEach(list []Example) []Example {
	var kept []Example
	for _, e := range list {
		if !slices.ContainsFunc(kept, func(k Example) bool { return k.Request.Model == e.Request.Model }) {
			kept = append(kept, e)
		}
	}
	return kept
}

// titleHTTP is the protocol over which an example's answer is shown in full.
const titleHTTP = "HTTP"

// loopback is where a demonstration listens.
const loopback = "127.0.0.1"

// choosePorts keeps the default ports that are free.
func (d *showing) choosePorts(ctx context.Context) {
	for _, e := range []*options.Endpoint{&d.o.HTTP.Endpoint, &d.o.GRPC.Endpoint, &d.o.Metrics.Endpoint} {
		e.Address = loopback
		var c net.ListenConfig
		l, err := c.Listen(ctx, "tcp", net.JoinHostPort(e.Address, strconv.Itoa(e.Port)))
		if err != nil {
			d.say("Port %d is taken; a free one is used instead.", e.Port)
			e.Port = 0
			continue
		}
		_ = l.Close()
	}
}

func (d *showing) run(ctx context.Context, once bool) error {
	if list := d.s.repo.Failures(); len(list) > 0 {
		return fmt.Errorf("model '%s' is unavailable: %w", list[0].Model, list[0].Err)
	}
	if err := d.s.start(); err != nil {
		return err
	}
	d.say("Serving %d models of %s.\n", len(d.s.repo.Models()), strings.Join(d.o.Repositories, ", "))
	for i := range d.examples {
		if err := d.show(ctx, &d.examples[i]); err != nil {
			return err
		}
	}
	if d.wrong > 0 {
		return fmt.Errorf("%d answers are not as expected", d.wrong)
	}
	d.say("HTTP     http://%s\ngRPC     grpc://%s\nmetrics  http://%s%s\n", d.s.http.address(), d.s.grpc.address(), d.s.metrics.address(), metricsPath)
	if d.o.Dashboard.Enabled {
		d.say("See it:\nhttp://%s%s\n", d.s.http.address(), web.Mount)
	}
	d.say("Try it:\n%s\n", d.curl())
	if once {
		return nil
	}
	d.say("Serving until Ctrl-C.")
	select {
	case err := <-d.s.fault():
		return err
	case <-ctx.Done():
		return nil
	}
}

// show sends one example over both protocols and prints what came of it.
func (d *showing) show(ctx context.Context, e *Example) error {
	d.say("== %s", e.Request.Model)
	for i := range e.Request.Inputs {
		d.say("   input   %s %s", e.Request.Inputs[i].Name, shorten(&e.Request.Inputs[i]))
	}
	for _, way := range [][2]string{{titleHTTP, "http://" + d.s.http.address()}, {"gRPC", "grpc://" + d.s.grpc.address()}} {
		c, err := client.Dial(way[1])
		if err != nil {
			return err
		}
		// The first request of a model allocates; the second shows its usual times.
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

func (d *showing) showAnswer(ctx context.Context, c client.Client, e *Example, title string) error {
	t, err := ask(ctx, c, &e.Request)
	if err != nil {
		return err
	}
	if title == titleHTTP {
		for i := range t.resp.Outputs {
			d.say("   answer  %s %s", t.resp.Outputs[i].Name, shorten(&t.resp.Outputs[i]))
		}
	}
	verdict := "as expected"
	if err := e.Check(t.resp); err != nil {
		d.wrong++
		verdict = "WRONG: " + err.Error()
	}
	d.say("   over %s in %s, %s", title, micros(t.took), verdict)
	plan, err := d.s.repo.Plan(e.Request.Model, 0)
	if err != nil {
		return err
	}
	writeColumns(d.stdout, "      ", t.rows(e.Request.Model, stepModels(plan)))
	return nil
}

// curl returns a command that asks the first example whose inputs JSON can hold.
func (d *showing) curl() string {
	for _, e := range d.examples {
		if body, err := jsonBody(&e.Request); err == nil {
			return fmt.Sprintf("curl -s http://%s/v2/models/%s/infer -d '%s'", d.s.http.address(), e.Request.Model,
				strings.ReplaceAll(string(body), "'", `'\''`))
		}
	}
	return "curl -s http://" + d.s.http.address() + "/v2"
}
