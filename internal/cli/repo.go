package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/table"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// repoCommands are the commands below `tutti repo`.
func repoCommands() []command { return slices.Concat(repoReadCommands(), repoChangeCommands()) }

// repoReadCommands are those of them that print. REPO is a folder, the address of a bucket, or the URL of a server, by
// default of that of the context.
func repoReadCommands() []command {
	return []command{
		{
			name: "ls", usage: "[REPO]", summary: "List the models of a repository, with their state if it is a server",
			examples: []string{"tutti repo ls models", "tutti repo ls grpc://127.0.0.1:8001"},
			run: func(p *program, ctx context.Context, args []string) error {
				c := newRepoCall(p, "ls")
				c.out = outputFlag(c.fs, formatTable, formatJSON, formatYAML)
				rest, err := arguments(c.fs, args, 0, 1, "a repository")
				if err != nil {
					return err
				}
				repo, err := c.target(rest, 0)
				if err != nil {
					return err
				}
				return p.repoList(ctx, c, repo)
			},
		},
		{
			name: "show", usage: "[REPO] MODEL", summary: "Print the versions and the completed configuration of a model",
			examples: []string{"tutti repo show models resnet", "tutti repo show http://127.0.0.1:8000 resnet"},
			run: func(p *program, ctx context.Context, args []string) error {
				c := newRepoCall(p, "show")
				c.out = outputFlag(c.fs, formatText, formatJSON, formatYAML)
				rest, err := arguments(c.fs, args, 1, 2, "a repository and a model")
				if err != nil {
					return err
				}
				repo, err := c.target(rest[:len(rest)-1], 0)
				if err != nil {
					return err
				}
				return p.repoShow(ctx, c, repo, rest[len(rest)-1])
			},
		},
		{
			name: "diff", usage: "REPO REPO [MODEL ...]", summary: "Compare the models of two repositories",
			notes:    "The command ends with 1 if there is a difference.",
			examples: []string{"tutti repo diff models http://127.0.0.1:8000", "tutti repo diff models s3://bucket/models resnet"},
			run: func(p *program, ctx context.Context, args []string) error {
				c := newRepoCall(p, "diff")
				c.out = outputFlag(c.fs, formatText, formatJSON, formatYAML)
				rest, err := arguments(c.fs, args, 2, math.MaxInt, "two repositories")
				if err != nil {
					return err
				}
				to := [2]*connection{new(c.connection), new(c.connection)} // the secrets of a context go to its own server
				for i := range to {
					if _, err := to[i].target(rest, i); err != nil {
						return err
					}
				}
				return p.repoDiff(ctx, c.out, to, [2]string{rest[0], rest[1]}, append([]string(nil), rest[2:]...)) // nil for all models
			},
		},
	}
}

// repoChangeCommands are those of them that change repositories and servers.
func repoChangeCommands() []command {
	return []command{
		{
			name: "push", usage: "MODEL_DIR REPO [-o text|json|yaml]", summary: "Copy a model into a folder or bucket",
			examples: []string{"tutti repo push models/resnet s3://bucket/models"},
			run: func(p *program, ctx context.Context, args []string) error {
				fs := p.flags("repo push")
				out := outputFlag(fs, formatText, formatJSON, formatYAML)
				rest, err := arguments(fs, args, 2, 2, "the folder of a model and a repository")
				if err != nil {
					return err
				}
				return p.repoPush(ctx, out, rest[0], rest[1])
			},
		},
		{
			name: "load", usage: "[URL] MODEL", summary: "Load a model into a server",
			notes:    "The server must run with --model-control-mode=explicit.",
			examples: []string{"tutti repo load http://127.0.0.1:8000 resnet"},
			run: func(p *program, ctx context.Context, args []string) error {
				c := newRepoCall(p, "load")
				c.out = outputFlag(c.fs, formatText, formatJSON, formatYAML)
				return c.control(ctx, p, args, "loaded", func(m client.Manager, model string) error { return explainLoad(ctx, m, model, m.Load(ctx, model)) })
			},
		},
		{
			name: "unload", usage: "[URL] MODEL", summary: "Unload a model from a server",
			notes:    "The server must run with --model-control-mode=explicit.",
			examples: []string{"tutti repo unload --dependents http://127.0.0.1:8000 text"},
			run: func(p *program, ctx context.Context, args []string) error {
				c := newRepoCall(p, "unload")
				c.out = outputFlag(c.fs, formatText, formatJSON, formatYAML)
				dependents := c.fs.Bool("dependents", false, "also unload the models that were loaded only for it")
				return c.control(ctx, p, args, "unloaded", func(m client.Manager, model string) error {
					return explainLoad(ctx, m, model, m.Unload(ctx, model, *dependents))
				})
			},
		},
	}
}

// repoCall is one call of a command below `tutti repo`.
type repoCall struct {
	connection

	fs  *flag.FlagSet
	out *output
}

func newRepoCall(p *program, name string) *repoCall {
	c := &repoCall{fs: p.flags("repo " + name)}
	c.flags(c.fs)
	return c
}

// changedModel is a model that was loaded or unloaded, as the commands print it.
type changedModel struct {
	Server string `json:"server"`
	Model  string `json:"model"`
	State  string `json:"state"` // loaded or unloaded
}

// control sends a request that loads or unloads a model. It prints nothing for people if the request succeeds.
func (c *repoCall) control(ctx context.Context, p *program, args []string, state string, change func(m client.Manager, model string) error) error {
	const expected = "the URL of a server and a model"
	rest, err := arguments(c.fs, args, 1, 2, expected)
	if err != nil {
		return err
	}
	model := rest[len(rest)-1]
	server, err := c.target(rest[:len(rest)-1], 0)
	if err != nil {
		return err
	}
	if !isServer(server) {
		return usagef("'%s' is no server, expected http://HOST:PORT or grpc://HOST:PORT", server)
	}
	if model == "" {
		return misused(strings.TrimPrefix(c.fs.Name(), commandName+" "), expected)
	}
	m, err := c.dial(server)
	if err != nil {
		return err
	}
	if err := errors.Join(c.explain(ctx, server, change(m, model)), m.Close()); err != nil {
		return err
	}
	return c.out.print(p.stdout, changedModel{server, model, state}, func() error { return nil })
}

// modelSource is a server, or a repository that is opened as a server would open it.
type modelSource struct {
	r     *openRepository // nil for a server
	index func() ([]infer.Entry, error)
	// config returns a completed configuration.
	config func(model string) (*modelconfig.ModelConfig, error)
	close  func() error
}

// openSource opens a server or a repository. It loads only the models of only from a repository; nil loads all.
func (p *program) openSource(ctx context.Context, c *connection, repo string, only []string) (*modelSource, error) {
	if isServer(repo) {
		m, err := c.dial(repo)
		if err != nil {
			return nil, err
		}
		return &modelSource{close: m.Close, index: func() ([]infer.Entry, error) {
			list, err := m.Index(ctx)
			return list, c.explain(ctx, repo, err)
		}, config: func(model string) (*modelconfig.ModelConfig, error) {
			cfg, err := m.Config(ctx, model)
			return cfg, c.explain(ctx, repo, explainModel(ctx, m, model, err))
		}}, nil
	}
	r, err := p.look(ctx, repository.Settings{Roots: []string{repo}, Only: only, Mode: repository.Explicit}, nil)
	if err != nil {
		return nil, err
	}
	return &modelSource{
		r: r, close: func() error { return r.Close(ctx) }, index: func() ([]infer.Entry, error) { return r.Index(false), nil },
		config: func(model string) (*modelconfig.ModelConfig, error) {
			cfg, err := r.Config(model, 0)
			if err != nil {
				err = failureOf(r.Repository, model, err)
			}
			return cfg, err
		},
	}, nil
}

// repoList prints the models. Those of a folder or bucket have only names.
func (p *program) repoList(ctx context.Context, c *repoCall, repo string) error {
	s, err := p.openSource(ctx, &c.connection, repo, []string{})
	if err != nil {
		return err
	}
	list, err := s.index()
	if err == nil {
		err = c.out.print(p.stdout, list, func() error {
			table.Left(p.stdout, entryRows(list))
			return nil
		})
	}
	if s.r != nil && err == nil {
		for _, f := range s.r.Failures() {
			err = errors.Join(err, f.Err)
		}
	}
	return errors.Join(err, s.close())
}

// entryRows returns the table of an index, with its heading.
func entryRows(list []infer.Entry) [][]string {
	rows := [][]string{{"MODEL", "VERSION", "STATE", "REASON"}}
	for _, e := range list {
		rows = append(rows, []string{e.Name, e.Version, string(e.State), status.Line(e.Reason)})
	}
	return rows
}

// repoShow prints the versions of a model and its completed configuration.
func (p *program) repoShow(ctx context.Context, c *repoCall, repo, model string) error {
	s, err := p.openSource(ctx, &c.connection, repo, []string{model})
	if err != nil {
		return err
	}
	list, err := s.index()
	if err != nil {
		return errors.Join(err, s.close())
	}
	list = slices.DeleteFunc(list, func(e infer.Entry) bool { return e.Name != model })
	cfg, err := s.config(model)
	shown := shownModel{Versions: list}
	if err == nil {
		shown.Config, err = config.JSON(cfg)
	}
	if len(list) > 0 || err == nil {
		err = errors.Join(err, c.out.print(p.stdout, shown, func() error { return p.writeModel(list, cfg) }))
	}
	return errors.Join(err, s.close())
}

// shownModel is a model as show prints it.
type shownModel struct {
	Versions []infer.Entry   `json:"versions"`
	Config   json.RawMessage `json:"config,omitempty"` // Config is missing if the model has none
}

// writeModel prints the versions of a model, and its configuration unless it is nil.
func (p *program) writeModel(list []infer.Entry, cfg *modelconfig.ModelConfig) (err error) {
	table.Left(p.stdout, entryRows(list))
	if cfg != nil {
		_, err = fmt.Fprintf(p.stdout, "\n%s", config.Text(cfg))
	}
	return err
}

// modelDifference is how a model differs between two repositories.
type modelDifference struct {
	Model  string   `json:"model"`
	OnlyIn string   `json:"only_in,omitempty"` // OnlyIn is the repository that has the model if the other has not
	Lines  []string `json:"lines,omitempty"`   // Lines are those of the first ("- ...") and of the second ("+ ...")
}

// repoDiff prints the differences between the models of two repositories: the ready versions, and the lines of the
// completed configurations. It fails if there are differences.
func (p *program) repoDiff(ctx context.Context, out *output, to [2]*connection, repos [2]string, models []string) error {
	var texts [2]map[string][]string
	both := map[string][]string{}
	for i, repo := range repos {
		s, err := p.openSource(ctx, to[i], repo, models)
		if err != nil {
			return err
		}
		defer func() { _ = s.close() }()
		if texts[i], err = describe(ctx, s, models); err != nil {
			return err
		}
		maps.Copy(both, texts[i])
	}
	list := []modelDifference{}
	for _, name := range slices.Sorted(maps.Keys(both)) {
		one, two := texts[0][name], texts[1][name]
		switch lines := compareLines(one, two); {
		case one == nil:
			list = append(list, modelDifference{Model: name, OnlyIn: repos[1]})
		case two == nil:
			list = append(list, modelDifference{Model: name, OnlyIn: repos[0]})
		case len(lines) > 0:
			list = append(list, modelDifference{Model: name, Lines: lines})
		}
	}
	err := out.print(p.stdout, list, func() error { return p.writeDifferences(list, repos) })
	if err == nil && len(list) > 0 {
		err = errReported
	}
	return err
}

func (p *program) writeDifferences(list []modelDifference, repos [2]string) (err error) {
	for _, d := range list {
		text := fmt.Sprintf("only in %s: %s", d.OnlyIn, d.Model)
		if d.OnlyIn == "" {
			text = fmt.Sprintf("--- %s: %s\n+++ %s: %s\n%s", repos[0], d.Model, repos[1], d.Model, strings.Join(d.Lines, "\n"))
		}
		if _, err := fmt.Fprintln(p.stdout, text); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		_, err = io.WriteString(p.stdout, "no difference\n")
	}
	return err
}

// describe returns the versions and the configuration of each named model, or of all models, as lines. A model that
// is not ready has the reason instead.
func describe(ctx context.Context, s *modelSource, models []string) (map[string][]string, error) {
	list, err := s.index()
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
		cfg, err := s.config(name)
		if ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		text := config.Text(cfg)
		if err != nil {
			text = []byte("# " + status.Line(err.Error()))
		}
		all[name] = append(lines, strings.Split(strings.TrimRight(string(text), "\n"), "\n")...)
	}
	return all, nil
}

// compareLines returns the lines that only a ("-") or only b ("+") has, computed from their longest common subsequence.
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
