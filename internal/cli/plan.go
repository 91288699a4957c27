package cli

import (
	"context"
	"errors"
	"io"

	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
)

// plan prints the execution plan of an ensemble.
func (p *program) plan(ctx context.Context, args []string) error {
	fs := p.flags("plan")
	after := fs.String("after", "", "stop after this `pass` of the compiler and print the incomplete plan")
	format := fs.String("format", "text", "`format`: text, dot for Graphviz, or svg")
	settings := options.BackendConfig{}
	fs.Var(settings, "backend-config", "`backend,key=value`: a setting of a backend; may be repeated")
	rest, err := arguments(fs, args, 2, 2, "a repository and a model")
	if err != nil {
		return err
	}
	r, err := p.look(ctx, repository.Settings{Roots: rest[:1], Only: rest[1:], GPUFallback: true}, settings)
	if err != nil {
		return err
	}
	return errors.Join(printPlan(p.stdout, r, rest[1], *after, *format), r.Close(ctx))
}

func printPlan(w io.Writer, r *repository.Repository, name, after, format string) error {
	if after != "" {
		text, err := r.Stage(name, after)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, text)
		return err
	}
	compiled, err := r.Plan(name, 0)
	if err != nil {
		return failureOf(r, name, err)
	}
	switch format {
	case "text":
		_, err = io.WriteString(w, compiled.Text())
		return err
	case "dot":
		return compiled.DOT(w)
	case "svg":
		return compiled.SVG(w, r.Kind)
	}
	return usagef("unknown format '%s', expected text, dot or svg", format)
}
