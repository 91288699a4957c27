package repository_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/backends/native"
	"github.com/tutti-server/tutti/backends/sequence"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/backends/sim/simtest"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/steps"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder writes the files of a txtar archive and returns their folder. A name that ends in a slash is an empty
// folder.
func folder(tb testing.TB, archive string) string {
	tb.Helper()
	root := tb.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		path := filepath.Join(root, f.Name)
		dir := filepath.Dir(path)
		if strings.HasSuffix(f.Name, "/") {
			dir = path
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
		if dir == path {
			continue
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return root
}

// stepFunc is a native step as a function.
type stepFunc func(ctx context.Context, b *backends.Batch) error

func (f stepFunc) Run(ctx context.Context, b *backends.Batch) error { return f(ctx, b) }

// stepOf declares a step IN FP32 [-1] to OUT FP32 [-1].
func stepOf(name string, inline bool, f stepFunc) steps.Factory {
	port := func(name string) []config.Port {
		return []config.Port{{Name: name, DType: tensor.FP32, Dims: tensor.Of(-1)}}
	}
	return steps.Factory{
		Name: name, Doc: "A step of a test.", Inline: inline,
		Signature: func(*steps.Settings) (*config.Signature, error) {
			return &config.Signature{Inputs: port("IN"), Outputs: port("OUT")}, nil
		},
		New: func(*steps.Settings) (steps.Step, error) { return f, nil },
	}
}

// double doubles its input.
func double(_ context.Context, b *backends.Batch) error {
	out, err := b.Alloc(0, tensor.FP32, b.In[0].Shape)
	if err != nil {
		return err
	}
	dst := tensor.Slice[float32](out)
	for i, v := range tensor.Slice[float32](&b.In[0]) {
		dst[i] = 2 * v
	}
	return nil
}

// spy is a backend that records its calls. The name of a model selects a failure: "unloadable", "uninstantiable",
// "shaky", or "panics".
type spy struct {
	places []tensor.Place // of models with instances at devices; nil for models of the host
	mu     sync.Mutex
	log    []string          // guarded by mu
	fail   map[string]error  // the result of loading a model, guarded by mu
	ports  map[string]string // the output of a model, OUT by default; guarded by mu
	// loading, when not nil, receives a channel for every load, which waits until that is closed.
	loading chan chan struct{}
	// executing, when not nil, receives a channel for every execution, which waits until that is closed.
	executing chan chan struct{}
	wrong     atomic.Bool // every output is 0
	// init, when not nil, is called while a model loads.
	init    func(ctx context.Context, model string) error
	unready atomic.Pointer[error] // the reason why no model is ready
}

// set changes the result of later loads of the named model.
func (s *spy) set(model string, fail error, output string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil {
		s.fail, s.ports = map[string]error{}, map[string]string{}
	}
	s.fail[model], s.ports[model] = fail, output
}

func (s *spy) result(model string) (output string, fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if output = s.ports[model]; output == "" {
		output = "OUT"
	}
	return output, s.fail[model]
}

func (s *spy) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, what)
}

func (s *spy) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range s.log {
		if l == what {
			n++
		}
	}
	return n
}

// first returns the index of the first record of an event, or -1.
func (s *spy) first(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Index(s.log, what)
}

func (s *spy) factory() backends.Factory {
	return backends.Factory{Name: "spy", New: func(backends.Options) (backends.Backend, error) {
		s.note("open backend")
		return s, nil
	}}
}

// Load implements backends.Backend.
func (s *spy) Load(ctx context.Context, set backends.Settings) (backends.Model, error) {
	if set.Model == "unloadable" {
		return nil, errors.New("the file is torn")
	}
	s.note("try " + set.Model)
	s.note("file " + filepath.Base(set.File("none")) + " of " + set.Model)
	if set.Model == "panics" {
		panic("a defect in the backend")
	}
	if s.loading != nil {
		wait := make(chan struct{})
		s.loading <- wait
		<-wait
	}
	output, fail := s.result(set.Model)
	if fail == nil && s.init != nil {
		fail = s.init(ctx, set.Model)
	}
	if fail != nil {
		return nil, fail
	}
	sig := &config.Signature{Model: set.Model, MaxBatch: int(set.Config.GetMaxBatchSize())}
	sig.Inputs = []config.Port{{Name: "IN", DType: tensor.FP32, Dims: tensor.Of(-1)}}
	sig.Outputs = []config.Port{{Name: output, DType: tensor.FP32, Dims: tensor.Of(-1)}}
	s.note("load " + set.Model)
	m := &spied{spy: s, sig: sig, name: set.Model}
	if len(s.places) > 0 {
		return placedSpy{m}, nil
	}
	return m, nil
}

// placedSpy is a model that names its places.
type placedSpy struct{ *spied }

func (m placedSpy) Places() []tensor.Place { return m.places }

// Close implements backends.Backend.
func (s *spy) Close() error {
	s.note("close backend")
	return nil
}

type spied struct {
	*spy
	sig  *config.Signature
	name string
	made int
}

func (m *spied) Signature() *config.Signature { return m.sig }

// Ready implements backends.ReadinessChecker.
func (m *spied) Ready() error {
	if why := m.unready.Load(); why != nil {
		return *why
	}
	return nil
}

func (m *spied) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if m.made++; m.made == 2 {
		switch m.name {
		case "uninstantiable":
			return nil, errors.New("no room for a second one")
		case "shaky":
			panic("a defect in the backend")
		}
	}
	m.note("instance " + m.name)
	m.note("at " + at.String() + " " + m.name)
	return &spiedInstance{spied: m, at: at}, nil
}

func (m *spied) Close() error {
	m.note("close model " + m.name)
	return nil
}

type spiedInstance struct {
	*spied
	at     tensor.Place
	closed atomic.Bool
}

func (i *spiedInstance) Execute(ctx context.Context, b *backends.Batch) error {
	if i.closed.Load() {
		return errors.New("executed when closed")
	}
	of := []string{"execute", i.name, "of"}
	for k := range b.Requests {
		of = append(of, strconv.Itoa(b.Requests[k].Rows))
	}
	i.note("execute " + i.name)
	i.note(strings.Join(of, " "))
	if i.executing != nil {
		wait := make(chan struct{})
		i.executing <- wait
		<-wait
	}
	err := double(ctx, b)
	if i.wrong.Load() && err == nil {
		clear(tensor.Slice[float32](&b.Out[0]))
	}
	return errors.Join(err, i.alive())
}

func (i *spiedInstance) alive() error {
	if i.closed.Load() {
		return errors.New("closed while it executed")
	}
	return nil
}

func (i *spiedInstance) Close() error {
	i.closed.Store(true)
	i.note("left " + i.at.String() + " " + i.name)
	i.note("close instance " + i.name)
	return nil
}

// world has the settings and fakes with which a test opens repositories.
type world struct {
	alloc   *tensortest.Checked
	metrics *telemetry.Metrics
	spy     *spy
	steps   []steps.Factory
	only    []string
	more    repository.Settings // further settings
	log     slog.Handler
	machine *simtest.Machine // the devices of all models; nil: the host
}

func newWorld(tb testing.TB, more ...steps.Factory) *world {
	tb.Helper()
	w := &world{
		alloc: tensortest.NewChecked(tb, nil), log: slog.DiscardHandler, metrics: telemetry.NewMetrics(), spy: &spy{},
		steps: append(more, stepOf("double", true, double)),
	}
	if cudatest.AtDevices() {
		w.atDevices(tb, 1)
	}
	return w
}

// atDevices makes every model of the world run on n devices, as simtest.New says.
func (w *world) atDevices(tb testing.TB, n int) {
	tb.Helper()
	w.machine = simtest.New(tb, n)
}

func (w *world) open(ctx context.Context, roots ...string) (*repository.Repository, error) {
	native, err := w.native()
	if err != nil {
		return nil, err
	}
	list := []backends.Factory{identity.NewFactory(), sequence.NewFactory(), native, w.spy.factory()}
	list = append(list, sim.NewFactory(list[:2]...))
	for i := range list {
		if w.machine != nil && list[i].Name != sim.Name {
			list[i] = simtest.Around(list[i], w.machine)
		}
	}
	registry, err := backends.NewRegistry(list...)
	if err != nil {
		return nil, err
	}
	s := w.more
	s.Roots, s.Only, s.Backends, s.Metrics, s.Log = roots, w.only, registry, w.metrics, slog.New(w.log)
	if s.Alloc == nil {
		s.Alloc = w.alloc
	}
	if w.machine != nil {
		s.Pinned = w.machine.Pinned(w.alloc)
	}
	return repository.Open(ctx, s)
}

func (w *world) native() (backends.Factory, error) {
	registry, err := steps.NewRegistry(w.steps...)
	return native.NewFactory(registry), err
}

// repo opens the folders. The repository is closed when the test ends.
func (w *world) repo(tb testing.TB, roots ...string) *repository.Repository {
	tb.Helper()
	r, err := w.open(tb.Context(), roots...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if w.machine != nil {
			copies, _ := simtest.CopiesOf(scrapeText(tb, w.metrics))
			w.machine.Within(copies) // warm-ups are in no ledger, and an unloaded model takes its ledger along
		}
		if err := r.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// touch changes a file of a model, so that the whole model is loaded again.
func touch(tb testing.TB, root, model string) {
	tb.Helper()
	f, err := os.OpenFile(filepath.Join(root, model, "renewed"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = f.WriteString("x") // the size changes even when the file times do not
	if err := errors.Join(err, f.Close()); err != nil {
		tb.Fatal(err)
	}
}

// failures returns, by model, the error that keeps it from serving.
func failures(r *repository.Repository) map[string]string {
	all := map[string]string{}
	for _, f := range r.Failures() {
		all[f.Model] = f.Err.Error()
	}
	return all
}

// request returns a request to a model with one value of input IN.
func (w *world) request(model string, v float32) *infer.Request {
	req := infer.NewRequest()
	req.Model = model
	in, err := tensor.New(w.alloc, tensor.FP32, tensor.Of(1, 1))
	if err != nil {
		panic(err)
	}
	tensor.Slice[float32](&in)[0] = v
	req.Inputs = append(req.Inputs, infer.Named{Name: "IN", Tensor: in})
	return req
}

// send sends a request and returns the first value of the first output.
func send(ctx context.Context, x infer.Inferer, req *infer.Request) (float32, error) {
	call := infer.NewCall()
	x.Submit(ctx, req, call)
	resp, err := call.Wait()
	if err != nil {
		return 0, err
	}
	defer resp.Release()
	return tensor.Slice[float32](&resp.Outputs[0].Tensor)[0], nil
}

// scale returns a step that multiplies its input.
func scale(by float32) stepFunc {
	return func(ctx context.Context, b *backends.Batch) error {
		if err := double(ctx, b); err != nil {
			return err
		}
		for i := range tensor.Slice[float32](&b.Out[0]) {
			tensor.Slice[float32](&b.Out[0])[i] *= by / 2
		}
		return nil
	}
}
