package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// folder is a model as found on disk or in a load request.
type folder struct {
	name, dir   string
	key         string // see source.keyOf
	fingerprint uint64 // identifies the state of the files when they were read. 0: not watched.
	// contents has a fingerprint per version of its files without the configuration. Nil: unknown.
	contents     map[int64]uint64
	cfg          *modelconfig.ModelConfig // the normalised configuration. Nil if err is set.
	defaultCount bool                     // set if the configuration has no instance_group
	versions     []int64                  // to be loaded, ascending
	missing      []int64                  // requested by the version policy, without a folder
	override     bool                     // set for a configuration or files from a load request
	reload       bool                     // set while an evicted version is loaded again
	overrideDir  *overrideDir             // holds the files of a load request, else nil
	diagnostics  []config.Diagnostic      // the findings about the configuration, errors included
	err          error
}

// source finds models in folders and buckets.
type source struct {
	roots      []string
	buckets    []*bucketRoot // the roots in buckets
	spaces     []string      // all namespaces; nil without namespacing
	configName string        // selects configs/NAME.pbtxt where a model has it
	options    config.Options
	log        *slog.Logger
	noGPU      error // why no GPU is used; nil if one is
	noGPUOnce  sync.Once
	gpuMissed  atomic.Bool // a model asked for one
}

// location is the place of a model in a repository, and of a duplicate with the same name.
type location struct {
	key, name, dir, duplicate string
	bucket                    *bucketRoot // bucket and objects are set for a model in a bucket; dir is then its address
	objects                   []cloud.Object
}

// locations returns the models of all roots, sorted by key. A folder that cannot be read is an error. For a bucket
// that cannot be listed the last listing counts.
func (s *source) locations() ([]location, error) {
	at := map[string]int{}
	var all []location
	err := s.each(func(p location) {
		if i, ok := at[p.key]; ok {
			all[i].duplicate = p.dir
			return
		}
		at[p.key] = len(all)
		all = append(all, p)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read model repository: %w", err)
	}
	slices.SortFunc(all, func(a, b location) int { return strings.Compare(a.key, b.key) })
	return all, nil
}

// each visits the models of all roots. It returns the error of the first folder that cannot be read.
func (s *source) each(visit func(location)) error {
	var first error
	for _, root := range s.roots {
		entries, err := os.ReadDir(root)
		first = cmp.Or(first, err)
		for _, e := range entries { // those before an error count
			if s.holdsModel(root, e.Name()) {
				visit(s.locationIn(root, e.Name()))
			}
		}
	}
	for _, m := range s.buckets {
		for _, name := range m.names() {
			visit(s.locationAt(m, name))
		}
	}
	return first
}

// locationAt returns the location of a model in a bucket. An unknown model has no objects.
func (s *source) locationAt(m *bucketRoot, name string) location {
	return location{key: s.keyOf(m.address, name), name: name, dir: m.address + "/" + name, bucket: m, objects: m.objects(name)}
}

func (s *source) locationIn(root, name string) location {
	return location{key: s.keyOf(trimRoot(root), name), name: name, dir: filepath.Join(root, name)}
}

func (s *source) holdsModels(root string) bool {
	entries, _ := os.ReadDir(root) // entries before an error count
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return s.holdsModel(root, e.Name()) })
}

// holdsModel reports whether a folder in a root is a model: not hidden, with a configuration or a version folder. A
// folder that cannot be read counts, so that loading it reports the error.
func (s *source) holdsModel(root, name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	dir := filepath.Join(root, name)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false
	}
	if _, err := os.Stat(config.PathOf(dir, s.configName)); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	found, _, err := VersionFolders(dir)
	return err == nil && len(found) > 0
}

// open downloads a model from its bucket, if it has one, and reads its configuration. Errors and panics are stored in
// the folder.
func (s *source) open(ctx context.Context, p location) (f *folder) {
	f = &folder{key: p.key, name: p.name, dir: p.dir, fingerprint: fingerprint(p)}
	if p.duplicate != "" {
		f.err = fmt.Errorf("model '%s' is in more than one repository: '%s' and '%s'", p.name, p.dir, p.duplicate)
		return f
	}
	defer s.recovered(f)
	if p.bucket != nil {
		if f.dir, f.err = p.bucket.fetch(ctx, p.name, p.objects); f.err != nil {
			f.dir = p.dir
			if status.CodeOf(f.err) != status.InvalidArg {
				f.fingerprint = 0 // the next attempt may see the same objects
			}
			return f
		}
	}
	from := config.Source{Dir: f.dir, Name: p.name, ConfigName: s.configName}
	var places *config.Positions
	if f.cfg, places, f.err = from.Open(); f.err == nil {
		s.check(f, places)
	}
	return f
}

// recovered must be deferred: it stores a panic as the folder's error.
func (s *source) recovered(f *folder) {
	if p := recover(); p != nil {
		f.cfg, f.versions = nil, nil
		f.err = recovery.Report(p, s.log, "opening model '"+f.name+"'", slog.String("model", f.name))
	}
}

// check normalises the configuration and finds the versions to load.
func (s *source) check(f *folder, places *config.Positions) {
	defer s.recovered(f)
	f.defaultCount = len(f.cfg.GetInstanceGroup()) == 0
	if s.noGPU != nil && len(s.options.Devices) == 0 && config.WantsGPU(f.cfg) {
		s.noGPUOnce.Do(func() {
			s.gpuMissed.Store(true)
			s.log.Warn("models ask for GPUs and none is used", slog.String("model", f.name), slog.String("reason", s.noGPU.Error()))
		})
	}
	f.diagnostics = config.NormaliseAndCheck(f.cfg, config.Source{Dir: f.dir, Name: f.name}, &s.options)
	places.Locate(f.diagnostics)
	if f.err = config.FirstError(f.diagnostics); f.err == nil {
		f.findVersions(&s.options)
	}
	if f.err == nil && f.overrideDir == nil {
		f.contents = contents(f.dir, f.versions)
	}
}

// findVersions selects versions by the version policy. A model that needs no version folder has version 1 without one.
func (f *folder) findVersions(o *config.Options) {
	found, ignored, err := VersionFolders(f.dir)
	for _, name := range ignored {
		f.diagnostics = append(f.diagnostics, config.IgnoredVersionFolder(f.name, name))
	}
	if err != nil {
		f.err = err
		return
	}
	if len(found) == 0 && !config.NeedsVersion(f.cfg, o) {
		found = []int64{1}
	}
	f.versions, f.missing = pick(f.cfg.GetVersionPolicy(), found)
	if len(f.versions) == 0 {
		f.err = config.NoVersionFolder(f.name, ignored)
	}
}

// pick applies a version policy to the versions found. wanted is ascending; absent are versions that the policy
// names but the folder lacks.
func pick(policy *modelconfig.ModelVersionPolicy, found []int64) (wanted, absent []int64) {
	switch {
	case policy.GetAll() != nil:
		return found, nil
	case policy.GetSpecific() != nil:
		for _, n := range policy.GetSpecific().GetVersions() {
			if slices.Contains(found, n) {
				wanted = append(wanted, n)
			} else {
				absent = append(absent, n)
			}
		}
		slices.Sort(wanted)
		return slices.Compact(wanted), absent
	default:
		latest := min(len(found), int(policy.GetLatest().GetNumVersions()))
		return found[len(found)-latest:], nil
	}
}

// VersionFolders returns the version folders of a model, ascending. A version is a positive integer without leading
// zeros. ignored are other names that look like versions, for example "v1" or "01".
func VersionFolders(dir string) (found []int64, ignored []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		n, ok := config.VersionOf(e.Name())
		if !ok && !config.LooksLikeVersion(e.Name()) {
			continue
		}
		switch info, err := os.Stat(filepath.Join(dir, e.Name())); {
		case err != nil || !info.IsDir():
		case ok:
			found = append(found, n)
		default:
			ignored = append(ignored, e.Name())
		}
	}
	slices.Sort(found)
	return found, ignored, nil
}

// EmptyRoots returns a sentence for each folder of Settings.Roots without models. It says where models are, if they
// can be found. An empty folder is no error: models may be added later.
func (r *Repository) EmptyRoots() []string {
	var list []string
	for _, root := range r.source.roots {
		if !r.source.holdsModels(root) {
			list = append(list, "no model is in "+root+r.source.hint(root))
		}
	}
	return list
}

// hint returns the rest of the sentence for a folder without models: a likely mistake, or nothing.
func (s *source) hint(root string) string {
	whole := filepath.Clean(root)
	if whole == "." || whole == ".." {
		whole, _ = filepath.Abs(whole) // without a working directory there is nothing to find
	}
	if parent := filepath.Dir(whole); s.holdsModel(parent, filepath.Base(whole)) {
		return ", which is the folder of a model: give the folder around it, " + parent
	}
	entries, _ := os.ReadDir(root) // an unreadable root was reported before
	for _, e := range entries {
		if inner := filepath.Join(root, e.Name()); s.holdsModels(inner) {
			return ", but models are in " + inner
		}
	}
	return ""
}
