package tune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// Settings are the parameters of Run.
type Settings struct {
	Root     string // the folder of models
	Ensemble string
	// Data are files with sample requests, as benchmark.Files reads them. The traffic repeats the requests in their order.
	// By default these are the golden requests of the ensemble, or those in expected.json.
	Data []string
	// Objective is the latency that 99 of 100 requests must not exceed.
	Objective time.Duration
	// Rate is the traffic in requests per second, for which the settings with the least processor time are searched. 0
	// searches the settings with the highest rate.
	Rate          float64
	Components    tutti.Components
	BackendConfig options.BackendConfig
	// Accelerators are the GPUs that a server would use. Models that would execute there are refused.
	Accelerators []tensor.Accelerator
	// Progress receives the name of each phase and its part that is done. Optional.
	Progress func(phase string, share float64)
	// Brief shortens every run to a fraction of a second, for tests: the results are not exact.
	Brief bool

	_ struct{}
}

// length returns the length of a run.
func (s *Settings) length(full time.Duration) time.Duration {
	if s.Brief {
		return full / brevity
	}
	return full
}

// number returns the number of requests of a run.
func (s *Settings) number(full int) int {
	if s.Brief {
		return max(1, full/brevity)
	}
	return full
}

// brevity is how many times shorter the runs of Settings.Brief are.
const brevity = 20

// Report is the result of Run.
type Report struct {
	Ensemble  string
	Objective time.Duration
	Cores     int
	Network   *Network
	Overhead  Overhead
	// Rate is the traffic of the validation, in requests per second. Given says that the caller chose it.
	Rate  float64
	Given bool
	// Current and Advice are the compared settings. Advice has the settings of Current when nothing better was found.
	Current, Advice Candidate
	Changed         bool
	Changes         []lab.Change
	// Points are all simulated operating points, for the picture.
	Points []Point
	// Foreign is how many cores other processes used during the validation, on average.
	Foreign float64
	Elapsed time.Duration
}

// Candidate is a set of settings with what was predicted and measured of it.
type Candidate struct {
	Settings []Setting // by model of the network
	// Highest is the highest predicted rate within the objective, with headroom; 0 if there is none, or it was not searched.
	Highest             float64
	Predicted, Measured Outcome
}

// UnreachableError is the error of an objective that no settings meet.
type UnreachableError struct {
	Objective, Best time.Duration // Best is the lowest p99 that can be had
	Rate            float64       // at this rate
	Executed        float64       // how many of these requests per second are executed
	Settings        string        // with these settings
}

func (e *UnreachableError) Error() string {
	if e.Best <= e.Objective { // of those that are executed
		return fmt.Sprintf("the objective of %s cannot be met: of %s requests/s at most %s are executed, with %s",
			Round(e.Objective), rounded(e.Rate), rounded(e.Executed), e.Settings)
	}
	return fmt.Sprintf("the objective of %s cannot be met: the lowest p99 that can be had at %s requests/s is %s, with %s",
		Round(e.Objective), rounded(e.Rate), Round(e.Best), e.Settings)
}

// BusyError is the error of a run that failed while other processes used the cores: alone it might have succeeded.
type BusyError struct {
	Err     error   // an *UnreachableError, or load.ErrLate
	Foreign float64 // the cores that other processes used, on average
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%v. Other processes used %.1f cores meanwhile: repeat it where nothing else runs", e.Err, e.Foreign)
}

func (e *BusyError) Unwrap() error { return e.Err }

// Run measures an ensemble and returns the best settings that it found, validated. It changes no file.
func Run(ctx context.Context, s Settings) (*Report, error) {
	began := time.Now()
	if s.Progress == nil {
		s.Progress = func(string, float64) {}
	}
	t := &tuning{Settings: &s, cores: runtime.GOMAXPROCS(0)}
	own, all := processTime(), machineTime()
	r, err := t.run(ctx)
	elapsed := time.Since(began)
	if err != nil {
		return nil, t.disturbed(err, (machineTime()-all-processTime()+own).Seconds()/elapsed.Seconds())
	}
	r.Elapsed = elapsed
	return r, nil
}

// run executes the phases.
func (t *tuning) run(ctx context.Context) (*Report, error) {
	if err := t.study(ctx); err != nil {
		return nil, err
	}
	if err := t.calibrate(ctx); err != nil {
		return nil, err
	}
	r, err := t.search(ctx)
	if err != nil {
		return nil, err
	}
	return r, t.validate(ctx, r)
}

// disturbed returns the error of a run in which other processes used so many cores. The processes of models in Python count as other
// ones: with them it is not known.
func (t *tuning) disturbed(err error, foreign float64) error {
	_, unreachable := errors.AsType[*UnreachableError](err)
	if foreign <= quiet || !unreachable && !errors.Is(err, load.ErrLate) ||
		slices.ContainsFunc(t.network.Models, func(m Model) bool { return m.Config.GetBackend() == "python" }) {
		return err
	}
	return &BusyError{err, foreign}
}

// tuning is the state of one Run.
type tuning struct {
	*Settings
	cores    int
	requests [][]client.Tensor // the inputs of the sample requests
	network  *Network
	overhead Overhead
}

// study loads the ensemble, finds the sizes of the samples at each step, and measures the models.
func (t *tuning) study(ctx context.Context) (err error) {
	t.Progress("load", 0)
	over, err := lab.NewOverlay(t.Root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, over.Remove()) }()
	n, names, err := t.variants(ctx, over)
	if err != nil {
		return err
	}
	l, err := openLab(ctx, t.Settings, over.Dir, names...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close(ctx)) }()
	p, err := l.Plan(t.Ensemble, 0)
	if err != nil {
		return err
	}
	inputs, err := t.trace(ctx, l, p, n)
	if err != nil {
		return err
	}
	t.network = n
	if err := l.measure(ctx, n, inputs, 2*t.Objective, func(share float64) { t.Progress("measure", share) }); err != nil {
		return err
	}
	return l.interference(ctx, n, t.cores, inputs)
}

// trace executes each sample and notes its size at each node. It returns the inputs of each sample at each node.
func (t *tuning) trace(ctx context.Context, l *bench, p *plan.Plan, n *Network) (inputs [][][]client.Tensor, err error) {
	for i, sample := range t.requests {
		list, err := l.Walk(ctx, p, sample)
		if err != nil {
			return nil, fmt.Errorf("sample request %d: %w", i+1, err)
		}
		sizes, err := l.sizes(p, list)
		if err != nil {
			return nil, err
		}
		inputs, n.Samples = append(inputs, list), append(n.Samples, Sample{sizes})
		t.Progress("load", float64(i+1)/float64(len(t.requests)))
	}
	return inputs, nil
}

// variants makes the network, and in the overlay a copy of each model for each number of threads and each version to measure. It
// returns the names to load.
func (t *tuning) variants(ctx context.Context, over *lab.Overlay) (n *Network, names []string, err error) {
	if _, err := os.Stat(filepath.Join(t.Root, t.Ensemble)); t.Ensemble == "" || !filepath.IsLocal(t.Ensemble) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil, status.Errorf(status.NotFound, "'%s' has no model '%s'", t.Root, t.Ensemble)
	}
	l, err := openLab(ctx, t.Settings, t.Root, t.Ensemble)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, l.Close(ctx)) }()
	n, p, err := l.network(t.Ensemble)
	if err != nil {
		return nil, nil, err
	}
	d, err := l.Describe(t.Ensemble, 0)
	if err != nil {
		return nil, nil, err
	}
	if t.requests, err = lab.Samples(ctx, t.Root, t.Ensemble, t.Data, d); err != nil {
		return nil, nil, err
	}
	inputs, err := l.Walk(ctx, p, t.requests[0])
	if err != nil {
		return nil, nil, fmt.Errorf("sample request 1: %w", err)
	}
	if err := t.larger(ctx, over, n, inputs); err != nil {
		return nil, nil, err
	}
	if err := t.alternatives(ctx, n, p); err != nil {
		return nil, nil, err
	}
	names, err = t.copies(over, n)
	return n, names, err
}

// copies makes the copies of models for each number of threads and each version to measure, and returns the names to load.
func (t *tuning) copies(over *lab.Overlay, n *Network) (names []string, err error) {
	names = []string{t.Ensemble}
	for i := range n.Models {
		m := &n.Models[i]
		m.Costs = map[Execution]Cost{}
		if m.Current.Threads == 0 {
			m.Costs[Execution{}] = Cost{}
			continue
		}
		for _, x := range t.executions(m) {
			m.Costs[x] = Cost{}
			set := m.Current
			set.Version, set.Threads, set.Instances, set.MaxBatch = x.Version, x.Threads, concurrent(t.cores, x.Threads), m.Largest
			name := variant(m.Name, x)
			if err := t.copyModel(over, m, name, &set); err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// executions returns the versions and numbers of threads to measure.
func (t *tuning) executions(m *Model) (list []Execution) {
	versions := []Version{{}}
	for i := range m.Versions {
		if a := &m.Versions[i]; a.Refused == "" {
			versions = append(versions, a.Version)
		}
	}
	for _, v := range versions {
		for _, threads := range t.threads(m) {
			list = append(list, Execution{v, threads})
		}
	}
	return list
}

// threads returns the numbers of threads to measure: powers of two up to the cores, and the current one.
func (t *tuning) threads(m *Model) []int {
	list := []int{m.Current.Threads}
	for n := 1; n <= t.cores; n *= 2 {
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// copyModel makes a model of another name with other settings in the overlay.
func (t *tuning) copyModel(over *lab.Overlay, m *Model, name string, set *Setting) error {
	folder, err := filepath.Abs(filepath.Join(t.Root, m.Name))
	if err != nil {
		return err
	}
	text, err := config.ReadText(filepath.Join(folder, config.FileName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	edits := append(Edits(m.Config, &m.Current, set), config.Edit{Path: "name", Value: fmt.Sprintf("%q", name)})
	if key := threadsKey(m.Config.GetBackend()); key != "" {
		edits = append(edits, config.Edit{Path: "parameters." + key, Value: strconv.Itoa(set.Threads)})
	}
	if text, err = config.EditText(text, edits...); err != nil {
		return fmt.Errorf("the configuration of model '%s': %w", m.Name, err)
	}
	return over.Set(name, folder, text)
}

// Round rounds a duration to three digits, for reports.
func Round(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d/unit < 1000 {
			return d.Round(unit)
		}
	}
}

// rounded formats a rate.
func rounded(rate float64) string {
	if rate < 10 {
		return fmt.Sprintf("%.2g", rate)
	}
	return fmt.Sprintf("%.0f", math.Round(rate))
}
