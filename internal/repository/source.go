package repository

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// folder is a model as found on disk or in a request to load it.
type folder struct {
	name, dir string
	key       string // see source.keyOf
	// print is a fingerprint of the files when they were read, 0 when nobody watches them.
	fingerprint uint64
	// contents are fingerprints of what each version is made of besides the configuration,
	// nil when nobody knows.
	contents map[int64]uint64
	// cfg is the normalised configuration; nil when err says why there is none.
	cfg *modelconfig.ModelConfig
	// anyCount says that the configuration leaves the number of instances open.
	defaultCount bool
	versions     []int64 // to be loaded, ascending
	missing      []int64 // that the policy asks for and the folder lacks
	// override marks a configuration or files that came with a request.
	override    bool
	overrideDir *overrideDir // of the files that came with a request, else nil
	// notes are all there is to tell about the configuration, faults among them.
	diagnostics []config.Diagnostic
	err         error
}

// source finds models in folders.
type source struct {
	roots   []string
	buckets []*bucketRoot // of the roots in buckets
	spaces  []string      // all namespaces; nil without namespacing
	// configName picks configs/NAME.pbtxt where a model has one.
	configName string
	options    config.Options
	log        *slog.Logger
}

// place is where a model was found, and where else when it is there twice.
type location struct {
	key, name, dir, duplicate string
	// mirror and objects are those of a model in a bucket, of which dir is the address.
	bucket  *bucketRoot
	objects []cloud.Object
}

// places finds the models of all roots, sorted by key. A folder that cannot be read
// is an error; of a bucket that cannot be listed counts what was known of it.
func (s *source) locations() ([]location, error) {
	at := map[string]int{}
	var all []location
	add := func(p location) {
		if i, ok := at[p.key]; ok {
			all[i].duplicate = p.dir
			return
		}
		at[p.key] = len(all)
		all = append(all, p)
	}
	for _, root := range s.roots {
		entries, err := os.ReadDir(root)
		if err != nil {
			return nil, fmt.Errorf("cannot read model repository: %w", err)
		}
		for _, e := range entries {
			if s.holdsModel(root, e.Name()) {
				add(s.locationIn(root, e.Name()))
			}
		}
	}
	for _, m := range s.buckets {
		for _, name := range m.names() {
			p := m.location(name)
			p.key = s.keyOf(m.address, name)
			add(p)
		}
	}
	slices.SortFunc(all, func(a, b location) int { return strings.Compare(a.key, b.key) })
	return all, nil
}

// placeIn is where a folder's model is.
func (s *source) locationIn(root, name string) location {
	return location{key: s.keyOf(trimRoot(root), name), name: name, dir: filepath.Join(root, name)}
}

// list calls yield with the names of a root's models; one that cannot be read has none.
func (s *source) list(root string) func(func(string) bool) {
	return func(yield func(string) bool) {
		entries, _ := os.ReadDir(root) // what could be read before an error counts
		for _, e := range entries {
			if s.holdsModel(root, e.Name()) && !yield(e.Name()) {
				return
			}
		}
	}
}

// holdsModel tells folders of models from other folders beside them: hidden ones
// are not, nor is one without both a configuration and a version. One that cannot be
// looked into is, so that loading it tells why.
func (s *source) holdsModel(root, name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	dir := filepath.Join(root, name)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false
	}
	if _, err := os.Stat(s.configFile(dir)); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	found, _, err := versionFolders(dir)
	return err == nil && len(found) > 0
}

// configFile returns the configuration of the wanted name, where there is one, else
// the one that every model has.
func (s *source) configFile(dir string) string {
	return config.PathOf(dir, s.configName)
}

// open reads a model's configuration; its error stays with the folder. A panic is an error of the model too.
func (s *source) open(ctx context.Context, p location) (f *folder) {
	f = &folder{key: p.key, name: p.name, dir: p.dir, fingerprint: fingerprint(p)}
	if p.duplicate != "" {
		f.err = fmt.Errorf("model '%s' is in more than one repository: '%s' and '%s'", p.name, p.dir, p.duplicate)
		return f
	}
	defer s.recovered(f)
	s.read(ctx, f, p)
	return f
}

// recovered, when deferred, keeps a panic with the folder that it was met in.
func (s *source) recovered(f *folder) {
	if p := recover(); p != nil {
		f.cfg, f.versions = nil, nil
		f.err = recovery.Report(p, s.log, "opening model '"+f.name+"'", slog.String("model", f.name))
	}
}

// read fetches the model if it is in a bucket, and reads its configuration.
func (s *source) read(ctx context.Context, f *folder, p location) {
	if p.bucket != nil {
		if f.dir, f.err = p.bucket.fetch(ctx, p.name, p.objects); f.err != nil {
			f.dir = p.dir
			if status.CodeOf(f.err) != status.InvalidArg {
				f.fingerprint = 0 // the same objects may come the next time
			}
			return
		}
	}
	from := config.Source{Dir: f.dir, Name: p.name, ConfigName: s.configName}
	var places *config.Places
	if f.cfg, places, f.err = from.Open(); f.err == nil {
		s.check(f, places)
	}
}

// check normalises the configuration and finds the versions to load.
func (s *source) check(f *folder, places *config.Places) {
	defer s.recovered(f)
	f.defaultCount = len(f.cfg.GetInstanceGroup()) == 0
	f.diagnostics = config.Settle(f.cfg, config.Source{Dir: f.dir, Name: f.name}, &s.options)
	places.Locate(f.diagnostics)
	if f.err = config.FirstError(f.diagnostics); f.err == nil {
		f.findVersions(&s.options)
	}
	if f.err == nil && f.overrideDir == nil {
		f.contents = contents(f.dir, f.versions)
	}
}

// findVersions picks versions by the policy. What needs no version folder is version 1 without one.
func (f *folder) findVersions(o *config.Options) {
	found, ignored, err := versionFolders(f.dir)
	for _, name := range ignored {
		f.diagnostics = append(f.diagnostics, config.NotVersion(f.name, name))
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

// pick returns which of the versions found a policy wants, ascending, and which it
// wants in vain.
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

// versionFolders returns the numbers that name folders of dir, ascending. Zero,
// leading zeros and anything else that is no positive integer is not a version; ignored
// are those that look as if they were meant to be.
func versionFolders(dir string) (found []int64, ignored []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		n, ok := config.VersionOf(e.Name())
		if !ok && !config.MeantVersion(e.Name()) {
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
