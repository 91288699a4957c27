package openvino

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// load reads the file, fits it to the configuration and compiles it.
func (m *model) load(s *backends.Settings, from *core, path string, set *settings, byDefault int) error {
	g, err := readGraph(from, path)
	if err != nil {
		err = bind.UnreadableFile(err, "a model that OpenVINO reads", path)
		return status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	defer g.close()
	if err := m.bind(s, g, set, byDefault); err != nil {
		return status.Errorf(status.CodeOf(err), "%w (in '%s')", err, path)
	}
	m.binding.Sig.Model, m.binding.Sig.Version = s.Model, s.Version
	if m.compiled, err = g.compile(set); err == nil {
		err = m.connect()
	}
	if err != nil {
		return status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	return nil
}

// bind fits the file's shapes to the configuration, and both to each other.
func (m *model) bind(s *backends.Settings, g *graph, set *settings, byDefault int) error {
	maxBatch, err := g.declares().MaxBatch(s.Config, byDefault)
	if err != nil {
		return err
	}
	if err := adapt(s.Config, g, set); err != nil {
		return err
	}
	if m.binding, err = bound(s.Config, g, maxBatch); err != nil {
		return err
	}
	m.fixed, err = batchOf(m.binding)
	return err
}

// isSavedModel reports whether a folder is a TensorFlow SavedModel, which OpenVINO reads as it is.
func isSavedModel(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, savedModel))
	return err == nil
}

// model is one compiled model file.
type model struct {
	compiled *compiled
	own      *core // nil where the backend's serves
	binding  *binding
	fixed    int64 // the file's batch size where that is not variable, or 0
	pad      bool
	threads  int
	// unsure is set once an output's shape proved not to follow from the batch; all are then left to the runtime.
	unsure atomic.Bool
	// slow is set while executions are so long that stopping one is worth its cost.
	slow atomic.Bool
}

var _ backends.ThreadedModel = (*model)(nil)

// connect finds the executable's ports and how many threads an execution takes.
func (m *model) connect() error {
	for k, bound := range [][]boundPort{m.binding.In, m.binding.Out} {
		for i := range bound {
			if err := m.compiled.find(&bound[i].Port, k == 1); err != nil {
				return err
			}
		}
	}
	m.slow.Store(true)
	threads, _ := strconv.Atoi(m.compiled.property(keyThreads))
	streams, _ := strconv.Atoi(m.compiled.property(keyStreams))
	m.threads = max(1, threads/max(1, streams))
	return nil
}

// Threads returns those of one execution, as the runtime settled on.
func (m *model) Threads() int { return m.threads }

// Signature returns the configured ports, or the file's where the configuration has none.
func (m *model) Signature() *config.Signature { return m.binding.Sig }

// NewInstance returns an executor on the host.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if err := bind.CheckHost("openvino", m.binding.Sig.Model, at); err != nil {
		return nil, err
	}
	return newInstance(m)
}

// Close unloads the model.
func (m *model) Close() error {
	if m.compiled != nil {
		m.compiled.close()
	}
	if m.own != nil {
		m.own.close()
		m.own = nil
	}
	return nil
}
