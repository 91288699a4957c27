package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	coreinfer "github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/table"
)

// repo inspects and changes repositories and running servers. REPO is a folder, the address of a bucket, or the URL
// of a server.
func (p *program) repo(ctx context.Context, args []string) error {
	fs := p.flags("repo")
	c := &connection{}
	c.flags(fs)
	dependents := fs.Bool("dependents", false, "also unload the models that were loaded only for it")
	rest, err := parse(fs, args)
	if err != nil {
		return err
	}
	verb := ""
	if len(rest) > 0 {
		verb, rest = rest[0], rest[1:]
	}
	switch {
	case verb == "ls" && len(rest) == 1:
		return p.repoList(ctx, c, rest[0])
	case verb == "show" && len(rest) == 2:
		return p.repoShow(ctx, c, rest[0], rest[1])
	case verb == "diff" && len(rest) >= 2:
		return p.repoDiff(ctx, c, rest[0], rest[1], rest[2:])
	case verb == "push" && len(rest) == 2:
		return p.repoPush(ctx, rest[0], rest[1])
	case verb == "load" && len(rest) == 2:
		return c.control(ctx, rest[0], rest[1], func(c client.Manager) error { return c.Load(ctx, rest[1]) })
	case verb == "unload" && len(rest) == 2:
		return c.control(ctx, rest[0], rest[1], func(c client.Manager) error { return c.Unload(ctx, rest[1], *dependents) })
	}
	return misused("repo", "one of the forms that --help lists")
}

// control sends a request that loads or unloads a model.
func (c *connection) control(ctx context.Context, server, model string, change func(client.Manager) error) error {
	if !isServer(server) {
		return usagef("'%s' is no server, expected http://HOST:PORT or grpc://HOST:PORT", server)
	}
	if model == "" {
		return misused("repo", "the name of a model")
	}
	m, err := c.dial(server)
	if err != nil {
		return err
	}
	return errors.Join(c.explain(ctx, server, change(m)), m.Close())
}

// modelSource is a server, or a repository that is opened as a server would open it.
type modelSource interface {
	index(ctx context.Context) ([]coreinfer.Entry, error)
	// config returns a completed configuration.
	config(ctx context.Context, model string) ([]byte, error)
	close(ctx context.Context) error
}

// openSource opens a server or a repository. It loads only the models of only from a repository; nil loads all.
func (p *program) openSource(ctx context.Context, c *connection, repo string, only []string) (modelSource, error) {
	if isServer(repo) {
		m, err := c.dial(repo)
		return &remoteSource{m: m, connection: c, url: repo}, err
	}
	r, err := p.look(ctx, repository.Settings{Roots: []string{repo}, Only: only, Mode: repository.Explicit}, nil)
	if err != nil {
		return nil, err
	}
	return &localSource{r}, nil
}

type remoteSource struct {
	m          client.Manager
	connection *connection
	url        string
}

func (s *remoteSource) close(context.Context) error { return s.m.Close() }

func (s *remoteSource) index(ctx context.Context) ([]coreinfer.Entry, error) {
	list, err := s.m.Index(ctx)
	return list, s.connection.explain(ctx, s.url, err)
}

func (s *remoteSource) config(ctx context.Context, model string) ([]byte, error) {
	cfg, err := s.m.Config(ctx, model)
	if err != nil {
		return nil, s.connection.explain(ctx, s.url, err)
	}
	return config.Text(cfg), nil
}

type localSource struct{ r *repository.Repository }

func (s *localSource) index(context.Context) ([]coreinfer.Entry, error) { return s.r.Index(false), nil }
func (s *localSource) close(ctx context.Context) error                  { return s.r.Close(ctx) }

func (s *localSource) config(_ context.Context, model string) ([]byte, error) {
	cfg, err := s.r.Config(model, 0)
	if err != nil {
		for _, f := range s.r.Failures() {
			if f.Model == model {
				return nil, f.Err
			}
		}
		return nil, err
	}
	return config.Text(cfg), nil
}

// repoList prints the models. Those of a folder or bucket have only names.
func (p *program) repoList(ctx context.Context, c *connection, repo string) error {
	s, err := p.openSource(ctx, c, repo, []string{})
	if err != nil {
		return err
	}
	list, err := s.index(ctx)
	if err == nil {
		table.Left(p.stdout, entryRows(list))
	}
	if l, ok := s.(*localSource); ok && err == nil {
		for _, f := range l.r.Failures() {
			err = errors.Join(err, f.Err)
		}
	}
	return errors.Join(err, s.close(ctx))
}

// entryRows returns the table of an index, with its heading.
func entryRows(list []coreinfer.Entry) [][]string {
	rows := [][]string{{"MODEL", "VERSION", "STATE", "REASON"}}
	for _, e := range list {
		rows = append(rows, []string{e.Name, e.Version, string(e.State), status.Line(e.Reason)})
	}
	return rows
}

// repoShow prints the versions of a model and its completed configuration.
func (p *program) repoShow(ctx context.Context, c *connection, repo, model string) error {
	s, err := p.openSource(ctx, c, repo, []string{model})
	if err != nil {
		return err
	}
	list, err := s.index(ctx)
	if err != nil {
		return errors.Join(err, s.close(ctx))
	}
	list = slices.DeleteFunc(list, func(e coreinfer.Entry) bool { return e.Name != model })
	table.Left(p.stdout, entryRows(list))
	text, err := s.config(ctx, model)
	if err == nil {
		_, err = fmt.Fprintf(p.stdout, "\n%s", text)
	}
	return errors.Join(err, s.close(ctx))
}
