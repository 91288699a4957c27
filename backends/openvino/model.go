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

// load reads the file, adapts it to the configuration and compiles it.
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

// bind adapts the shapes of the file to the configuration, and binds the ports.
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
	own      *core // the core of a model with an extension, else nil
	binding  *binding
	fixed    int64 // the batch size of the file when it is not variable, else 0
	pad      bool
	threads  int
	// unsure is set when an output's shape did not depend on the batch as expected. The runtime then allocates all outputs.
	unsure atomic.Bool
	// slow is set while executions are long enough that cancelling them is worth its cost.
	slow atomic.Bool
}

var _ backends.ThreadedModel = (*model)(nil)

// connect looks up the ports of the compiled model and its number of threads.
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

// Threads implements backends.ThreadedModel.
func (m *model) Threads() int { return m.threads }

// Signature implements backends.Model.
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
