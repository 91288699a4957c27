package cli

import (
	"context"
	"fmt"

	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/internal/table"
)

// runtime fetches a native library, or lists the known ones.
func (p *program) runtime(ctx context.Context, args []string) error {
	fs := p.flags("runtime")
	dir := fs.String("dir", runtimes.Folder, "`folder` of fetched libraries")
	rest, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(rest) == 1 && rest[0] == "list":
		return p.listRuntimes()
	case len(rest) == 2 && rest[0] == "fetch":
		path, err := (&runtimes.Fetcher{Progress: p.stderr}).Fetch(ctx, rest[1], *dir)
		if err == nil {
			err = p.prepare(ctx, rest[1], path)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(p.stdout, path)
		return err
	}
	return misused("runtime", "fetch with a name, or list")
}

// prepare builds what the backend of a fetched library needs in addition.
func (p *program) prepare(ctx context.Context, name, path string) error {
	registry, err := p.components.Registry()
	if err != nil {
		return err
	}
	if f := registry.ByName(name); f != nil && f.Prepare != nil {
		return f.Prepare(ctx, path, p.stderr)
	}
	return nil
}

// listRuntimes prints every runtime with the path of its library, or with the command that fetches it.
func (p *program) listRuntimes() error {
	rows := [][]string{{"NAME", "LIBRARY", "STATUS", "PATH OR WHAT TO DO"}}
	for _, r := range runtimes.List() {
		found := "found"
		path, err := runtimes.Find(r.Name, "")
		if err != nil {
			found, path = "missing", err.Error()
		}
		rows = append(rows, []string{r.Name, r.Title, found, path})
	}
	table.Left(p.stdout, rows)
	return nil
}
