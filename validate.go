package tutti

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"tutti/core/config"
	"tutti/core/telemetry"
	"tutti/core/tensor"
	"tutti/options"
	"tutti/repository"
)

// load opens repositories for commands that look at models and serve none.
func (p *program) load(ctx context.Context, roots, only []string, settings options.BackendConfig) (*repository.Repository, error) {
	return p.look(ctx, repository.Settings{Roots: roots, Only: only}, settings)
}

// look is load with further settings.
func (p *program) look(ctx context.Context, s repository.Settings, settings options.BackendConfig) (*repository.Repository, error) {
	registry, err := p.components.registry()
	if err != nil {
		return nil, err
	}
	s.Backends = registry
	s.BackendConfig, _ = settings.Settings(registry)
	s.Alloc, s.Metrics, s.Log = tensor.NewPool(), telemetry.NewMetrics(), slog.New(slog.DiscardHandler)
	return repository.Open(ctx, s)
}

const validateUsage = "DIR ... [--format text|json|sarif] [--strict]"

// validate tells everything about the configurations of repositories, and loads their
// models as far as their runtimes are here.
func (p *program) validate(ctx context.Context, args []string) error {
	fs := p.flags("validate", validateUsage)
	settings := options.BackendConfig{}
	format := fs.String("format", formatText, "`format`: text, json, or sarif for code scanners")
	strict := fs.Bool("strict", false, "refuse what Triton would not accept, too")
	name := fs.String("model-config-name", "", "`name`: take configs/NAME.pbtxt where a model has it")
	strictEnsembles := fs.Bool("strict-ensemble-config", false, "read ensembles as Triton does: nothing is inferred")
	fs.Var(settings, "backend-config", "`backend,key=value`: a setting of a backend; may be repeated")
	roots, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(roots) == 0:
		return usagef("expected the folder of a model repository: tutti validate %s", validateUsage)
	case *format != formatText && *format != formatJSON && *format != formatSARIF:
		return usagef("unknown format '%s', expected text, json or sarif", *format)
	}
	e := &examiner{program: p, roots: roots, options: config.Options{StrictEnsembleConfig: *strictEnsembles}, configName: *name}
	if err := e.run(ctx, settings); err != nil {
		return err
	}
	if *strict {
		e.list = config.Strict(e.list)
	}
	if err := writeReport(p.stdout, *format, e.list, e.models); err != nil {
		return err
	}
	if config.HasFault(e.list) {
		return errReported
	}
	return nil
}

const (
	formatText  = "text"
	formatJSON  = "json"
	formatSARIF = "sarif"
)

// writeReport prints diagnostics.
func writeReport(w io.Writer, format string, list []config.Diagnostic, models int) error {
	switch format {
	case formatJSON:
		return writeJSON(w, report{Models: models, Diagnostics: append([]config.Diagnostic{}, list...)})
	case formatSARIF:
		return writeJSON(w, newSARIF(list))
	}
	var b strings.Builder
	counts := map[config.Severity]int{}
	for i := range list {
		counts[list[i].Severity]++
		b.WriteString(list[i].String() + "\n")
	}
	fmt.Fprintf(&b, "%s in %s\n", strings.Join([]string{
		plural(counts[config.Fault], "error"), plural(counts[config.Warning], "warning"), plural(counts[config.Notice], "notice"),
	}, ", "), plural(models, "model"))
	_, err := io.WriteString(w, b.String())
	return err
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// report is what the format json prints.
type report struct {
	Models      int                 `json:"models"`
	Diagnostics []config.Diagnostic `json:"diagnostics"`
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
