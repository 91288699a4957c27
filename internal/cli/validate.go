package cli

import (
	"context"
	"log/slog"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/lint"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// look opens repositories for commands that do not serve them.
func (p *program) look(ctx context.Context, s repository.Settings, settings options.BackendConfig) (*repository.Repository, error) {
	registry, err := p.components.Registry()
	if err != nil {
		return nil, err
	}
	s.Backends = registry
	s.BackendConfig, _ = settings.Settings(registry)
	s.Alloc, s.Metrics, s.Log = tensor.NewPool(), telemetry.NewMetrics(), slog.New(slog.DiscardHandler)
	return repository.Open(ctx, s)
}

// failureOf returns the reason that a model was not loaded, by default err.
func failureOf(r *repository.Repository, model string, err error) error {
	for _, f := range r.Failures() {
		if f.Model == model {
			return f.Err
		}
	}
	return err
}

// validate prints every problem of repositories. It loads the models whose runtimes are on this machine.
func (p *program) validate(ctx context.Context, args []string) error {
	fs := p.flags("validate")
	settings := options.BackendConfig{}
	format := fs.String("format", lint.Text, "`format`: text, json, or sarif for code scanners")
	strict := fs.Bool("strict", false, "also refuse what Triton would not accept")
	name := fs.String("model-config-name", "", "`name`: use configs/NAME.pbtxt of models that have it")
	strictEnsembles := fs.Bool("strict-ensemble-config", false, "read ensembles as Triton does: nothing is inferred")
	strictParams := fs.Bool("strict-parameters", false, "refuse unknown parameters")
	fallback := fs.String("gpu-fallback", options.FallbackNone, "`where`: cpu accepts models for missing GPUs, as serve --gpu-fallback=cpu does")
	fs.Var(settings, "backend-config", "`backend,key=value`: a setting of a backend; may be repeated")
	roots, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(roots) == 0:
		return misused("validate", "the folder of a model repository")
	case *format != lint.Text && *format != lint.JSON && *format != lint.SARIF:
		return usagef("unknown format '%s', expected text, json or sarif", *format)
	case *fallback != options.FallbackNone && *fallback != options.FallbackCPU:
		return usagef("unknown --gpu-fallback '%s', expected none or cpu", *fallback)
	}
	r, err := p.report(ctx, lint.Settings{
		Roots: roots, ConfigName: *name, Options: config.Options{StrictEnsembleConfig: *strictEnsembles, StrictParams: *strictParams, GPUFallback: *fallback == options.FallbackCPU},
	}, settings)
	if err != nil {
		return err
	}
	if *strict {
		r.Diagnostics = config.Strict(r.Diagnostics)
	}
	if err := r.Write(p.stdout, *format, tutti.Version); err != nil {
		return err
	}
	if config.HasFault(r.Diagnostics) {
		return errReported
	}
	return nil
}

// report checks repositories.
func (p *program) report(ctx context.Context, s lint.Settings, settings options.BackendConfig) (r *lint.Report, err error) {
	if s.Backends, err = p.components.Registry(); err != nil {
		return nil, err
	}
	s.Repository, err = p.look(ctx, repository.Settings{
		Roots: s.Roots, ConfigName: s.ConfigName, StrictEnsembleConfig: s.Options.StrictEnsembleConfig, StrictParams: s.Options.StrictParams, GPUFallback: s.Options.GPUFallback,
	}, settings)
	if err != nil {
		return nil, err
	}
	return lint.Examine(s), s.Repository.Close(ctx)
}
