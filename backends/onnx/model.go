package onnx

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/runtimes"
)

const (
	// modelFile is the model's file, or a folder that holds a file of that name and its external data.
	modelFile = "model.onnx"
)

// NewFactory returns the onnxruntime backend. Its settings: see startSettings, and default-max-batch-size, the
// max_batch_size given to a model that can batch and whose configuration is left to autocompletion.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:        "onnxruntime",
		Platforms:   []string{"onnxruntime_onnx"},
		DefaultFile: modelFile,
		ConfigKeys:  []string{bind.KeyMaxBatch, keyShared, keyInter, keyIntra, keyLibrary, keyMemory},
		Params:      params,
		Native:      true,
		Guide:       guide,
		New:         open,
	}
}

// backend is an opened ONNX Runtime.
type backend struct {
	lib      *library
	start    start
	maxBatch int
	places   *tensor.Places
}

var _ backends.Describer = (*backend)(nil)

// Describe returns the library's version and path.
func (b *backend) Describe() string { return "ONNX Runtime " + b.lib.version + ", " + b.lib.path }

func open(o backends.Options) (backends.Backend, error) {
	b := &backend{places: o.Places}
	var err error
	if b.maxBatch, err = bind.DefaultMaxBatch("onnxruntime", o.Config); err != nil {
		return nil, err
	}
	if b.start, err = startSettings(o.Config); err != nil {
		return nil, err
	}
	path, err := runtimes.Find("onnxruntime", o.Config[keyLibrary])
	if err != nil {
		return nil, err
	}
	b.lib, err = openLibrary(path, b.start)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Load loads a model file. The instances of the model at one place share one session: its runs may overlap, and the
// weights are held once.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	path, err := bind.ModelFile(&s, modelFile, nil)
	if err != nil {
		return nil, err
	}
	sessions, set, err := b.sessions(ctx, &s, path)
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	m := &model{sessions: sessions, shrink: set.shrink, threads: set.threads(), places: b.places}
	if m.binding, err = bound(s.Config, sessions[0].session, b.maxBatch); err != nil {
		_ = m.Close()
		return nil, status.Errorf(status.CodeOf(err), "%w (in '%s')", err, path)
	}
	m.binding.Sig.Model, m.binding.Sig.Version = s.Model, s.Version
	return m.placed(), nil
}

// sessions opens the file once for every place that instances will be at.
func (b *backend) sessions(ctx context.Context, s *backends.Settings, path string) ([]placedSession, settings, error) {
	set, err := modelSettings(s.Config, s.Instances, b.start)
	if err != nil {
		return nil, set, err
	}
	host, device, err := accelerators(s.Config)
	if err == nil {
		err = b.lib.missing(host) // those of devices are asked for where an instance is at one
	}
	if err == nil {
		set.libraries, err = libraries(s)
	}
	if err != nil {
		return nil, set, err
	}
	set.providers = host
	var all []placedSession
	for _, at := range placesOf(s.Config) {
		one := set
		if at.Kind == tensor.Device {
			one = set.onDevice(int(at.ID), device)
			err = b.lib.missing(one.providers)
		}
		var ses *session
		if err == nil {
			ses, err = openSession(ctx, b.lib, path, &one)
		}
		if err != nil {
			closeSessions(all)
			return nil, set, err
		}
		all = append(all, placedSession{ses, at})
	}
	return all, set, nil
}

// Close ends the runtime once the last output that it owns is released.
func (b *backend) Close() error {
	if b.lib != nil {
		b.lib.release()
		b.lib = nil
	}
	return nil
}

// libraries returns the files of custom operators that a configuration names: in the version's folder, in the model's,
// or anywhere by a whole path.
func libraries(s *backends.Settings) ([]string, error) {
	var found []string
	for _, name := range s.Config.GetModelOperations().GetOpLibraryFilename() {
		places := []string{filepath.Join(s.Dir, name), filepath.Join(s.ModelDir, name)}
		if filepath.IsAbs(name) {
			places = []string{name}
		}
		i := slices.IndexFunc(places, func(p string) bool {
			info, err := os.Stat(p)
			return err == nil && info.Mode().IsRegular()
		})
		if i < 0 {
			return nil, status.Errorf(status.NotFound, "operator library '%s': expected a file at '%s'", name, strings.Join(places, "' or '"))
		}
		found = append(found, places[i])
	}
	return found, nil
}

// placedSession is the session of one place.
type placedSession struct {
	*session
	at tensor.Place
}

func closeSessions(list []placedSession) {
	for _, s := range list {
		s.close()
	}
}

// model is one loaded model file.
type model struct {
	sessions []placedSession // at least one
	binding  *binding
	shrink   string
	threads  int
	places   *tensor.Places
	// unsure is set once the declared names of dimensions proved wrong; output shapes are then left to the runtime.
	unsure atomic.Bool
}

var _ backends.ThreadedModel = (*model)(nil)

// Threads returns those of one execution, as configured.
func (m *model) Threads() int { return m.threads }

// Signature returns the configured ports, or the file's where the configuration has none.
func (m *model) Signature() *config.Signature { return m.binding.Sig }

// NewInstance returns an executor on the host, or at a GPU that the configuration names.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	i := slices.IndexFunc(m.sessions, func(s placedSession) bool { return s.at == at })
	if i < 0 {
		return nil, status.Errorf(status.Unsupported, "model '%s': the configuration has no instance group for %s", m.binding.Sig.Model, at)
	}
	x, err := newInstance(m, m.sessions[i].session)
	if err != nil || at.Kind != tensor.Device {
		return x, err
	}
	return m.atDevice(x, at)
}

// Close unloads the model.
func (m *model) Close() error {
	closeSessions(m.sessions)
	return nil
}
