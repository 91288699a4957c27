package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/sequence"
)

// dryRun sends requests to one instance of a model before the model serves. The requests do not count in the
// statistics.
type dryRun struct {
	exec      *exec.Executor
	queue     scheduler.Scheduler
	sequences bool // makes every request a sequence with START and END
}

// borrowedInstance forwards to an instance and does not close it.
type borrowedInstance struct{ backends.Instance }

// Unwrap returns the instance.
func (x borrowedInstance) Unwrap() backends.Instance { return x.Instance }

// Close does nothing: the owner closes the instance.
func (borrowedInstance) Close() error { return nil }

// newDryRun returns a dry run of one instance, which is borrowed. batch requests of a model that batches execute as
// one batch.
func (r *Repository) newDryRun(f *folder, v *version, inst backends.Instance, together int) (*dryRun, error) {
	stats := &telemetry.Model{Name: v.sig.Model, Version: v.sig.Version}
	x := &dryRun{sequences: v.cfg.GetSequenceBatching() != nil}
	own := instances{{inst: borrowedInstance{inst}}}
	runner := batch.NewRunner(batch.Settings{
		Signature: v.sig, Stats: stats, Alloc: r.s.Alloc, Padding: v.padding, Log: r.s.Log, Mover: r.mover,
	})
	switch {
	case x.sequences:
		s := r.sequenceSettings(f, v, stats, own)
		if together > 1 {
			s.Rules.Slots, s.Rules.Utilization, s.Rules.Delay = together, 1, time.Hour // batches of exactly this many sequences
			if s.Rules.Oldest {
				s.Policy = fixedRules(together).Policy()
			}
		}
		q, err := sequence.New(s)
		if err != nil {
			return nil, err
		}
		if x.queue = q; together == 1 {
			q.Flush() // requests do not wait for each other
		}
	case together > 1:
		rules := fixedRules(together)
		rules.Padded = v.padding != nil
		x.queue = dynamic.New(dynamic.Settings{Runner: runner, Instances: own.backends(), Workers: r.workers}, rules)
	default:
		x.queue = direct.NewInline(direct.Settings{Runner: runner, Instances: own.backends()})
	}
	x.exec = exec.New(exec.Settings{
		Plan: plan.Single(v.sig), Stats: stats, Workers: r.workers, Mover: r.mover,
		Targets: []scheduler.Scheduler{x.queue},
	})
	return x, nil
}

// fixedRules returns the rules for batches of exactly this many rows.
func fixedRules(rows int) dynamic.Rules {
	return dynamic.Rules{MaxBatch: int32(rows), Preferred: []int32{int32(rows)}, Delay: time.Hour, MaxElements: math.MaxInt64}
}

// send sends a request and returns its last response. A decoupled model may have none: then the response is nil.
func (x *dryRun) send(ctx context.Context, req *infer.Request) (*infer.Response, error) {
	if x.sequences && req.Sequence == (infer.Sequence{}) {
		req.Sequence = infer.Sequence{ID: 1, Start: true, End: true}
	}
	call := infer.NewCall()
	x.exec.Submit(ctx, req, call)
	return call.Wait()
}

// sendAll sends requests that may execute as one batch, and returns the errors. For a sequence model each request
// is a sequence.
func (x *dryRun) sendAll(ctx context.Context, list []*infer.Request) (failed []error) {
	calls := make([]*infer.Call, len(list))
	for i, req := range list {
		if x.sequences {
			req.Sequence = infer.Sequence{ID: uint64(i + 1), Start: true, End: true}
		}
		calls[i] = infer.NewCall()
		x.exec.Submit(ctx, req, calls[i])
	}
	for _, call := range calls {
		resp, err := call.Wait()
		if resp != nil {
			resp.Release()
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// withDryRun calls use with a dry run of one instance and closes it.
func (r *Repository) withDryRun(
	ctx context.Context, f *folder, v *version, inst backends.Instance, together int, use func(*dryRun) error,
) error {
	x, err := r.newDryRun(f, v, inst, together)
	if err != nil {
		return err
	}
	return errors.Join(use(x), x.queue.Drain(context.WithoutCancel(ctx)), x.queue.Close())
}

// prepare warms up the instances of a version, and checks the golden requests on the first one.
func (r *Repository) prepare(ctx context.Context, f *folder, v *version, active instances) error {
	if len(active) == 0 {
		return nil // passive instances accept no requests
	}
	samples, err := r.warmups(f, v)
	if err != nil {
		return err
	}
	for i := range active {
		u := &active[i]
		if i > 0 && u.inst == active[i-1].inst {
			continue // shared by several
		}
		for _, s := range samples {
			err := r.withDryRun(ctx, f, v, u.inst, s.batchSize, func(x *dryRun) error { return r.warmUp(ctx, x, s, u.name) })
			if err != nil {
				return err
			}
		}
	}
	if len(samples) > 0 {
		r.s.Log.DebugContext(ctx, "model warmed up", slog.String("model", f.name), slog.Int64("version", v.sig.Version), slog.Int("samples", len(samples)))
	}
	return r.withDryRun(ctx, f, v, active[0].inst, 1, func(x *dryRun) error { return r.checkGoldens(ctx, f, v, x) })
}

// The folder of a model that holds the data of warm-up requests, and the bounds of one request.
const (
	warmupFolder  = "warmup"
	maxWarmup     = 1 << 30 // bytes of one input of one request
	maxWarmupRuns = 1 << 16
)

// sample is one entry of model_warmup, ready to send.
type sample struct {
	name         string
	model        string
	runs         int
	requestCount int // requests per run
	inputs       []sampleInput
	alloc        tensor.Allocator
	batchSize    int // the number of requests that execute as one batch
}

type sampleInput struct {
	name  string
	dtype tensor.DType
	shape tensor.Shape
	data  []byte
}

// warmups reads the model_warmup of a configuration. As in Triton, a sample with batch_size 0 is left out. Inputs
// that clients cannot send, such as sequence controls and states, are left out too: Triton takes them from the
// sample, here each request is a sequence with START and END.
func (r *Repository) warmups(f *folder, v *version) ([]*sample, error) {
	var list []*sample
	for _, w := range f.cfg.GetModelWarmup() {
		if w.GetBatchSize() == 0 {
			continue
		}
		s := &sample{
			name: w.GetName(), model: f.name, alloc: r.s.Alloc,
			runs: max(1, int(min(w.GetCount(), maxWarmupRuns))), requestCount: int(w.GetBatchSize()), batchSize: 1,
		}
		if v.sig.MaxBatch > 0 {
			s.batchSize = s.requestCount
		}
		for _, name := range slices.Sorted(maps.Keys(w.GetInputs())) {
			if v.sig.Input(name) < 0 && v.full.Input(name) >= 0 {
				continue
			}
			in, err := readSample(f.dir, name, w.GetInputs()[name], v.sig.MaxBatch > 0)
			if err != nil {
				return nil, err
			}
			s.inputs = append(s.inputs, in)
		}
		list = append(list, s)
	}
	return list, nil
}

// readSample makes the data of one input; one row of it for a model that batches.
func readSample(dir, name string, in *modelconfig.ModelWarmup_Input, row bool) (sampleInput, error) {
	s := sampleInput{name: name, dtype: tensor.DType(in.GetDataType()), shape: tensor.Of(in.GetDims()...)} //nolint:gosec // the numbers are the same
	size := s.dtype.Size()
	if s.dtype == tensor.Bytes {
		size = len(noText)
	}
	n := s.shape.Elements()
	if n < 0 || n > maxWarmup || n*int64(size) > maxWarmup {
		return s, status.Errorf(status.InvalidArg, "warmup setting expects at most %d bytes for input '%s', found shape %s of %s", maxWarmup, name, s.shape, s.dtype)
	}
	var err error
	if s.data, err = s.read(dir, in, int(n)*size); err == nil && row {
		s.shape = s.shape.Prepend(1)
	}
	return s, err
}

// read returns the data: size bytes, or any number for BYTES.
func (s *sampleInput) read(dir string, in *modelconfig.ModelWarmup_Input, size int) ([]byte, error) {
	switch in.GetInputDataType().(type) {
	case *modelconfig.ModelWarmup_Input_ZeroData:
		return make([]byte, size), nil
	case *modelconfig.ModelWarmup_Input_RandomData:
		return random(s.dtype, size), nil
	case *modelconfig.ModelWarmup_Input_InputDataFile:
	default:
		return nil, status.Errorf(status.InvalidArg, "warmup setting expects input '%s' to have input_data_type set", s.name)
	}
	file := in.GetInputDataFile()
	data, err := readBelow(dir, filepath.Join(warmupFolder, file))
	switch {
	case err != nil:
		return nil, status.Errorf(status.InvalidArg, "failed to open text file for read %s: %w", filepath.Join(warmupFolder, file), err)
	case s.dtype == tensor.Bytes:
		return data, tensor.CheckBytes(data, s.shape.Elements())
	case len(data) < size:
		return nil, status.Errorf(status.InvalidArg, "warmup setting expects %d bytes, but the data provided from %s only has %d bytes", size, file, len(data))
	}
	return data[:size], nil
}

// noText is an empty string as a BYTES element.
const noText = "\x00\x00\x00\x00"

// random returns n random bytes of a type. BYTES elements are empty, BOOL elements 0 or 1.
func random(d tensor.DType, n int) []byte {
	data := make([]byte, n)
	if d == tensor.Bytes {
		return data
	}
	for i := range data {
		data[i] = byte(rand.Uint32()) //nolint:gosec // nothing depends on it being hard to guess
		if d == tensor.Bool {
			data[i] &= 1
		}
	}
	return data
}

// readBelow reads a file in a model's folder. A path or link that leads outside is an error.
func readBelow(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("expected a file, found %s", info.Mode())
	case info.Size() > maxWarmup:
		return nil, fmt.Errorf("%d bytes, expected at most %d", info.Size(), maxWarmup)
	}
	return root.ReadFile(name)
}

// warmUp executes a sample on an instance, as often as it says, until it fails.
func (r *Repository) warmUp(ctx context.Context, x *dryRun, s *sample, instance string) error {
	for i := range s.runs {
		//nolint:sloglint // the line is Triton's, which people look for
		r.s.Log.DebugContext(ctx, fmt.Sprintf("model '%s' instance %s is running warmup sample '%s' for iteration %d", s.model, instance, s.name, i+1))
		list, err := s.requests()
		if err != nil {
			return status.Errorf(status.InvalidArg, "failed to run warmup sample '%s': %w; ", s.name, err)
		}
		if failed := x.sendAll(ctx, list); len(failed) > 0 {
			return status.Errorf(status.InvalidArg, "failed to run warmup sample '%s': %s", s.name, joinErrors(failed))
		}
	}
	return nil
}

func joinErrors(failed []error) string {
	var said []string
	for _, err := range failed {
		if text := err.Error() + "; "; !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	return strings.Join(said, "")
}

func (s *sample) requests() ([]*infer.Request, error) {
	list := make([]*infer.Request, s.requestCount)
	for n := range list {
		list[n] = infer.NewRequest()
		list[n].Model = s.model
		for i := range s.inputs {
			t, err := s.inputs[i].tensor(s.alloc)
			if err != nil {
				for _, req := range list[:n+1] {
					req.Release()
				}
				return nil, err
			}
			list[n].Inputs = append(list[n].Inputs, infer.Named{Name: s.inputs[i].name, Tensor: t})
		}
	}
	return list, nil
}

func (s *sampleInput) tensor(a tensor.Allocator) (tensor.Tensor, error) {
	var t tensor.Tensor
	var err error
	if s.dtype == tensor.Bytes {
		t, err = tensor.NewBytes(a, s.shape, len(s.data))
	} else {
		t, err = tensor.New(a, s.dtype, s.shape)
	}
	if err == nil {
		copy(t.Bytes(), s.data)
	}
	return t, err
}
