package tutti

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tutti/core/config"
	"tutti/core/status"
	"tutti/pipeline/plan"
	"tutti/proto/modelconfig"
	"tutti/repository"
)

const planUsage = "DIR NAME [--after PASS] [--format text|dot|svg]"

// plan prints what an ensemble is compiled to.
func (p *program) plan(ctx context.Context, args []string) error {
	fs := p.flags("plan", planUsage)
	after := fs.String("after", "", "stop after this `pass` of the compiler and print what is known")
	format := fs.String("format", "text", "`format`: text, dot for Graphviz, or svg")
	settings := backendConfig{}
	fs.Var(settings, "backend-config", "`backend,key=value`: a setting of a backend; may be repeated")
	rest, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(rest) != 2:
		return usagef("expected a repository and a model: tutti plan %s", planUsage)
	}
	r, err := p.load(ctx, rest[:1], rest[1:], settings)
	if err != nil {
		return err
	}
	return errors.Join(printPlan(p.stdout, r, rest[1], *after, *format), r.Close(ctx))
}

func printPlan(w io.Writer, r *repository.Repository, name, after, format string) error {
	if after != "" {
		return printStage(w, r, name, after)
	}
	compiled, err := r.Plan(name, 0)
	if err != nil {
		for _, f := range r.Failures() {
			if f.Model == name {
				return f.Err
			}
		}
		return err
	}
	switch format {
	case "text":
		_, err = io.WriteString(w, compiled.Text())
		return err
	case "dot":
		return compiled.DOT(w)
	case "svg":
		return compiled.SVG(w, lookup{r}.kind)
	}
	return usagef("unknown format '%s', expected text, dot or svg", format)
}

func printStage(w io.Writer, r *repository.Repository, name, after string) error {
	l := lookup{r}
	cfg := l.config(name)
	if cfg == nil || !config.IsEnsemble(cfg) {
		return fmt.Errorf("model '%s' is no ensemble that can be read; --after shows how one is compiled", name)
	}
	text, err := plan.Stages(cfg, l, after)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text)
	return err
}

// lookup answers the compiler from a repository.
type lookup struct{ r *repository.Repository }

var _ plan.Lookup = lookup{}

func (l lookup) config(name string) *modelconfig.ModelConfig {
	for _, cfg := range l.r.Configs {
		if cfg.GetName() == name {
			return cfg
		}
	}
	return nil
}

// kind says in a word what runs a model: its native step, else its backend.
func (l lookup) kind(model string) string {
	cfg := l.config(model)
	if step := cfg.GetParameters()["step"].GetStringValue(); step != "" {
		return step
	}
	if cfg.GetBackend() != "" {
		return cfg.GetBackend()
	}
	return cfg.GetPlatform()
}

// Model returns a model's signature, and an ensemble's configuration.
func (l lookup) Model(name string, version int64) (plan.Model, error) {
	cfg := l.config(name)
	if cfg == nil {
		return plan.Model{}, status.Errorf(status.NotFound, "there is no model '%s'", name)
	}
	if config.IsEnsemble(cfg) {
		return plan.Model{Signature: config.SignatureOf(cfg), Ensemble: cfg}, nil
	}
	compiled, err := l.r.Plan(name, version)
	if err != nil {
		return plan.Model{}, err
	}
	return plan.Model{Signature: compiled.Signature}, nil
}
