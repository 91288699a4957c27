package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// repoDiff prints the differences between the models of two repositories: the ready versions, and the lines of the
// completed configurations. It fails if there are differences.
func (p *program) repoDiff(ctx context.Context, c *connection, one, two string, models []string) error {
	var sources [2]modelSource
	for i, repo := range []string{one, two} {
		s, err := p.openSource(ctx, c, repo, allOf(models))
		if err != nil {
			return err
		}
		defer s.close(ctx)
		sources[i] = s
	}
	var texts [2]map[string][]string
	for i, s := range sources {
		var err error
		if texts[i], err = describe(ctx, s, models); err != nil {
			return err
		}
	}
	var names []string
	for _, t := range texts {
		for name := range t {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	differ := false
	for _, name := range slices.Compact(names) {
		lines := compareLines(texts[0][name], texts[1][name])
		if len(lines) == 0 {
			continue
		}
		differ = true
		fmt.Fprintf(p.stdout, "--- %s: %s\n+++ %s: %s\n%s\n", one, name, two, name, strings.Join(lines, "\n"))
	}
	if differ {
		return errReported
	}
	_, err := io.WriteString(p.stdout, "no difference\n")
	return err
}

// allOf returns nil, which stands for all models, if models is empty.
func allOf(models []string) []string {
	if len(models) == 0 {
		return nil
	}
	return models
}

// describe returns the versions and the configuration of each named model, or of all models, as lines. A model that
// is not ready has the reason instead.
func describe(ctx context.Context, s modelSource, models []string) (map[string][]string, error) {
	list, err := s.index(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, e := range list {
		if len(models) > 0 && !slices.Contains(models, e.Name) {
			continue
		}
		if e.State == infer.Ready {
			all[e.Name] = append(all[e.Name], "# version "+e.Version)
		} else if all[e.Name] == nil {
			all[e.Name] = []string{}
		}
	}
	for name, lines := range all {
		text, err := s.config(ctx, name)
		if ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		if err != nil {
			text = []byte("# " + status.Line(err.Error()))
		}
		all[name] = append(lines, strings.Split(strings.TrimRight(string(text), "\n"), "\n")...)
	}
	return all, nil
}

// compareLines returns the lines that only a ("-") or only b ("+") has, computed from their longest common
// subsequence.
func compareLines(a, b []string) []string {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := range slices.Backward(a) {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var out []string
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}
