package cli

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// starters are small repositories of native steps, which need no further files.
//
//go:embed starter
var starters embed.FS

const (
	starterRoot  = "starter"
	starterUsual = "text"
	pythonName   = "python" // both the backend and its starter
)

// init writes a small repository.
func (p *program) init(_ context.Context, args []string) error {
	fs := p.flags("init")
	const expected = "a folder and what to start with"
	rest, err := arguments(fs, args, 1, 2, expected)
	if err != nil {
		return err
	}
	if rest[0] == "" {
		return misused("init", expected)
	}
	kind := starterUsual
	if len(rest) == 2 {
		kind = rest[1]
	}
	entries, err := starters.ReadDir(starterRoot)
	if err != nil {
		return err
	}
	var kinds []string
	for _, e := range entries {
		kinds = append(kinds, e.Name())
	}
	if !slices.Contains(kinds, kind) {
		return usagef("unknown kind '%s', expected one of %s", kind, strings.Join(kinds, ", "))
	}
	if err := writeStarter(rest[0], kind); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "Wrote %s. Check it and serve it:\n  tutti validate %s\n  tutti serve --model-repository %s\n", rest[0], rest[0], rest[0])
	return err
}

// writeStarter copies a starter into dir, which must be empty or missing. It writes no empty folders, which git
// would drop: neither an ensemble nor a native step needs a version folder.
func writeStarter(dir, kind string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("folder '%s' is not empty", dir)
	}
	from, err := fs.Sub(starters, starterRoot+"/"+kind)
	if err != nil {
		return err
	}
	return fs.WalkDir(from, ".", func(path string, e fs.DirEntry, err error) error {
		to := filepath.Join(dir, filepath.FromSlash(path))
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(to, 0o755) //nolint:gosec // a repository is for everybody
		}
		data, err := fs.ReadFile(from, path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644) //nolint:gosec // a repository is for everybody
	})
}
