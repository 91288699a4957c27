package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/lint"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// config prints a model's configuration as the configuration endpoint returns it.
func (p *program) config(ctx context.Context, args []string) error {
	set := p.flags("config")
	settings := options.BackendConfig{}
	format := set.String("format", lint.Text, "`format`: text as in config.pbtxt, or json as from the configuration endpoint")
	name := set.String("model-config-name", "", "`name`: use configs/NAME.pbtxt if the model has it")
	set.Var(settings, "backend-config", "`backend,key=value`: a setting of a backend; may be repeated")
	rest, err := arguments(set, args, 1, 1, "the folder of a model")
	switch {
	case err != nil:
		return err
	case *format != lint.Text && *format != lint.JSON:
		return usagef("unknown format '%s', expected text or json", *format)
	}
	dir, err := filepath.Abs(rest[0])
	if err != nil {
		return err
	}
	if err := isModel(dir, rest[0], *name); err != nil {
		return err
	}
	r, err := p.look(ctx, repository.Settings{
		Roots: []string{filepath.Dir(dir)}, Only: []string{filepath.Base(dir)}, ConfigName: *name,
	}, settings)
	if err != nil {
		return err
	}
	cfg, err := p.completed(r, config.Source{Dir: dir, Name: filepath.Base(dir), ConfigName: *name})
	if err == nil {
		err = p.printConfig(cfg, *format)
	}
	return errors.Join(err, r.Close(ctx))
}

// isModel returns an error if a folder, which the user named called, is not the folder of a model.
func isModel(dir, called, configName string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("the folder '%s' cannot be read: %w", called, err)
	}
	if _, err := os.Stat(config.PathOf(dir, configName)); !errors.Is(err, fs.ErrNotExist) {
		return nil // reading it reports the error
	}
	for _, e := range entries {
		if _, ok := config.VersionOf(e.Name()); ok {
			return nil
		}
	}
	return fmt.Errorf("'%s' holds no model, expected a %s or a version folder in it", called, config.FileName)
}

// completed returns the configuration that a server would return. Without the model's runtime, it has only the
// values that follow from the configuration.
func (p *program) completed(r *repository.Repository, s config.Source) (*modelconfig.ModelConfig, error) {
	cfg, err := r.Config(s.Name, 0)
	if err == nil {
		return cfg, nil
	}
	if err = failureOf(r, s.Name, err); status.CodeOf(err) != status.Unavailable {
		return nil, err
	}
	fmt.Fprintf(p.stderr, "not completed from the model's file: %v\n", err)
	cfg, list := config.Read(s, nil)
	return cfg, config.FirstError(list)
}

func (p *program) printConfig(cfg *modelconfig.ModelConfig, format string) error {
	if format == lint.Text {
		_, err := p.stdout.Write(config.Text(cfg))
		return err
	}
	raw, err := config.JSON(cfg)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, b.String())
	return err
}
