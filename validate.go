package tutti

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"tutti/core/telemetry"
	"tutti/core/tensor"
	"tutti/repository"
)

// load opens repositories for commands that look at models and serve none.
func (p *program) load(ctx context.Context, roots, only []string, settings backendConfig) (*repository.Repository, error) {
	registry, err := p.components.registry()
	if err != nil {
		return nil, err
	}
	merged, _ := backendSettings(registry, settings)
	return repository.Open(ctx, repository.Settings{
		Roots: roots, Only: only, Backends: registry, BackendConfig: merged,
		Alloc: tensor.NewPool(), Metrics: telemetry.NewMetrics(), Log: slog.New(slog.DiscardHandler),
	})
}

// validate loads models as a server would and prints every problem.
func (p *program) validate(ctx context.Context, args []string) error {
	fs := p.flags("validate", "DIR ...")
	settings := backendConfig{}
	fs.Var(settings, "backend-config", "`backend,key=value`: a setting of a backend; may be repeated")
	roots, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(roots) == 0:
		return usagef("expected the folder of a model repository: tutti validate DIR ...")
	}
	r, err := p.load(ctx, roots, nil, settings)
	if err != nil {
		return err
	}
	found, known := p.printProblems(r), len(r.Models())
	if err := r.Close(ctx); err != nil {
		return err
	}
	switch {
	case known == 0:
		return fmt.Errorf("no model is in %s", strings.Join(roots, ", "))
	case found > 0:
		fmt.Fprintf(p.stdout, "%d problems in %d models\n", found, known)
		return errReported
	}
	fmt.Fprintf(p.stdout, "%d models, no problem\n", known)
	return nil
}

// printProblems prints a line per problem and returns their number.
func (p *program) printProblems(r *repository.Repository) int {
	failures := map[string]repository.Failure{}
	for _, f := range r.Failures() {
		failures[f.Model] = f
	}
	n := 0
	for _, name := range r.Models() {
		texts := problems(r.Check(name), failures[name].Err)
		for _, text := range texts {
			fmt.Fprintf(p.stdout, "%s: %s\n", name, text)
		}
		n += len(texts)
	}
	return n
}

// problems returns the texts of what the configuration shows and of what loading
// ended with, each once.
func problems(shown []error, failure error) []string {
	var texts []string
	add := func(err error) {
		if err != nil && !slices.Contains(texts, err.Error()) {
			texts = append(texts, err.Error())
		}
	}
	for _, err := range shown {
		add(err)
	}
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](failure); ok {
		for _, err := range joined.Unwrap() {
			add(err)
		}
	} else {
		add(failure)
	}
	return texts
}
