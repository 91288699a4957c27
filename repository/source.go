package repository

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tutti/core/config"
	"tutti/proto/modelconfig"
)

// folder is a model as found on disk.
type folder struct {
	name, dir string
	// cfg is the normalised configuration; nil when err says why there is none.
	cfg *modelconfig.ModelConfig
	// instances is the configured number of instances, 0 when the configuration
	// leaves it open.
	instances int
	versions  []int64 // to be loaded, ascending
	err       error
}

// scan finds the models of all roots, sorted by name. A root that cannot be read is
// an error; a model that cannot is returned with its own.
func scan(roots []string) ([]*folder, error) {
	byName := map[string]*folder{}
	var all []*folder
	for _, root := range roots {
		entries, err := os.ReadDir(root)
		if err != nil {
			return nil, fmt.Errorf("cannot read model repository: %w", err)
		}
		for _, e := range entries {
			if !isModelFolder(root, e) {
				continue
			}
			f := open(e.Name(), filepath.Join(root, e.Name()))
			if twin := byName[f.name]; twin != nil {
				twin.err = fmt.Errorf("model '%s' is in more than one repository: '%s' and '%s'", f.name, twin.dir, f.dir)
				continue
			}
			byName[f.name] = f
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *folder) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// isModelFolder tells folders of models from other folders beside them: hidden ones
// are not, nor is one without both a configuration and a version. One that cannot be
// looked into is, so that loading it tells why.
func isModelFolder(root string, e os.DirEntry) bool {
	if strings.HasPrefix(e.Name(), ".") {
		return false
	}
	dir := filepath.Join(root, e.Name())
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false
	}
	if _, err := os.Stat(filepath.Join(dir, config.FileName)); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	found, err := versionFolders(dir)
	return err == nil && len(found) > 0
}

func open(name, dir string) *folder {
	f := &folder{name: name, dir: dir}
	f.cfg, f.err = config.Load(dir)
	if f.err != nil {
		return f
	}
	for _, g := range f.cfg.GetInstanceGroup() {
		f.instances += max(1, int(g.GetCount()))
	}
	if f.err = config.Normalise(f.cfg, name); f.err != nil {
		return f
	}
	if f.err = config.Validate(f.cfg); f.err != nil {
		return f
	}
	f.versions, f.err = wantedVersions(dir, f.cfg)
	return f
}

// wantedVersions returns the versions the policy picks, ascending. An ensemble has
// no files, so it needs no version folder and is version 1 without one.
func wantedVersions(dir string, cfg *modelconfig.ModelConfig) ([]int64, error) {
	found, err := versionFolders(dir)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if config.IsEnsemble(cfg) {
			return []int64{1}, nil
		}
		return nil, fmt.Errorf("at least one version must be available under the version policy of model '%s'", cfg.GetName())
	}
	latest := max(1, int(cfg.GetVersionPolicy().GetLatest().GetNumVersions()))
	return found[max(0, len(found)-latest):], nil
}

// versionFolders returns the numbers that name folders of dir, ascending. Zero,
// leading zeros and anything else that is no positive integer is not a version.
func versionFolders(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []int64
	for _, e := range entries {
		n, err := strconv.ParseInt(e.Name(), 10, 64)
		if err != nil || n < 1 || strconv.FormatInt(n, 10) != e.Name() {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.IsDir() {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found, nil
}
