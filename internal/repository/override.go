package repository

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// overrideDir holds the files that came with a load request. It is removed when its last user releases it.
type overrideDir struct {
	dir   string
	users atomic.Int32
}

func (t *overrideDir) retain() {
	if t != nil {
		t.users.Add(1)
	}
}

// release removes the folder after the last user.
func (t *overrideDir) release() error {
	if t == nil || t.users.Add(-1) > 0 {
		return nil
	}
	return os.RemoveAll(t.dir)
}

// newOverrideDir writes the files into a private folder and retains it once.
func newOverrideDir(model string, files map[string][]byte) (*overrideDir, error) {
	for name := range files {
		if !filepath.IsLocal(inside(name)) || inside(name) == "." {
			return nil, failedToPoll(model, ": override file '"+name+"' is outside the model's folder, expected a relative path as in '1/model.onnx'")
		}
	}
	dir, err := os.MkdirTemp("", "tutti-model-")
	if err != nil {
		return nil, err
	}
	t := &overrideDir{dir: dir}
	t.retain()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := t.write(inside(name), files[name]); err != nil {
			_ = t.release() // the first error says more
			return nil, failedToPoll(model, ": override file '"+name+"' cannot be written: "+err.Error())
		}
	}
	return t, nil
}

// inside returns the path of an override file relative to its model's folder. A leading slash means that folder.
func inside(name string) string { return filepath.Clean(strings.TrimLeft(name, "/")) }

func (t *overrideDir) write(name string, data []byte) error {
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return root.WriteFile(name, data, 0o600)
}

// fetch returns the model as the options ask for it; with namespacing all models with the name. The caller must
// release an overrideDir once.
func (s *source) fetch(ctx context.Context, name string, o infer.LoadOptions) ([]*folder, error) {
	all := s.findAll(name)
	switch {
	case len(o.Files) > 0 && o.Config == "":
		return nil, failedToPoll(name, ": override files need an override of the configuration")
	case len(all) == 0 && len(o.Files) == 0:
		return nil, s.unknown(name)
	case o.Config == "":
		return s.openEach(ctx, all), nil
	case len(all) > 1:
		return nil, (&model{name: name, sharedBy: len(all)}).ambiguous()
	}
	p := location{key: s.keyOf("", name), name: name}
	if len(all) > 0 {
		p = all[0]
	}
	f, err := s.override(ctx, p, o)
	return []*folder{f}, err
}

// override returns a model with the configuration, and files, of a load request.
func (s *source) override(ctx context.Context, p location, o infer.LoadOptions) (*folder, error) {
	cfg, err := config.ParseJSON(o.Config)
	if err != nil {
		return nil, failedToPoll(p.name, ": "+err.Error())
	}
	f := &folder{key: p.key, name: p.name, dir: p.dir, cfg: cfg, override: true}
	if len(o.Files) == 0 && p.dir != "" { // the files serve with it until they change
		f.fingerprint = fingerprint(p)
	}
	if p.bucket != nil && len(o.Files) == 0 {
		if f.dir, err = p.bucket.fetch(ctx, p.name, p.objects); err != nil {
			return nil, failedToPoll(p.name, ": "+err.Error())
		}
	}
	if len(o.Files) > 0 {
		if f.overrideDir, err = newOverrideDir(p.name, o.Files); err != nil {
			return nil, err
		}
		f.dir = f.overrideDir.dir
	}
	s.check(f, nil)
	return f, nil
}

// unknown returns the error for a name that no repository has. If a bucket cannot be listed, that is the error.
func (s *source) unknown(name string) error {
	for _, m := range s.buckets {
		if err := m.err.Load(); err != nil {
			return failedToPoll(name, ": "+(*err).Error())
		}
	}
	return failedToPoll(name, ": model not found in any model repository")
}

// failedToPoll is Triton's error for a model that cannot be found or read.
func failedToPoll(name, why string) error {
	return status.Errorf(status.Internal, "failed to load '%s', failed to poll from model repository%s", name, why)
}
