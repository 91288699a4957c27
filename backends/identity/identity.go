// Package identity implements the backend identity, which copies INPUTi to OUTPUTi. Tests and examples use it, and
// benchmarks use it to measure the cost of a request without a model. It is also the backend to copy when you write
// another one.
package identity

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// NewFactory returns the factory of the backend identity. Its models have no files: config.pbtxt declares pairs
// INPUTi and OUTPUTi of equal type and dims (as the model sees them), of any type and number. It may declare none.
// Inputs may be computed over the batch (batch_input) or ragged. Where an input is and its output is not, each
// request receives its own, unbatched input.
//
// An optional input that a request omits yields an output of zeros or empty strings, with size 1 for each variable
// dimension. With the parameter absent_as_zeros "false" the output is omitted.
//
// The other parameters are those of NVIDIA's backend:
//   - creation_delay_sec delays loading.
//   - execute_delay_ms delays executions: by the plain value at instance 0, and by i times
//     instance_wise_delay_multiplier times the value at instance i. For example, with 100 and 4 the first three
//     instances take 100, 400 and 800 ms. The delay ends early when all clients of the batch have disconnected.
//   - enable_custom_tracing "true" reports activities for each sampled request, as report describes.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "identity",
		Guide:  backends.Guide{Doc: "Copies each input `INPUTn` to the output `OUTPUTn`. Other parameters are those of Triton's test model: delays, zeros for absent inputs."},
		Params: []string{keyZeros, keyCreation, keyTracing, keyExecute, keyMultiplier, keySpans, keyFrequency},
		New:    func(backends.Options) (backends.Backend, error) { return backends.Loader(load), nil },
	}
}

// load checks that the configuration declares matching pairs.
func load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	cfg := s.Config
	params, err := parse(s.Model, cfg.GetParameters())
	if err != nil {
		return nil, err
	}
	sig := config.ModelOf(config.SignatureOf(cfg))
	sig.Model, sig.Version = s.Model, s.Version
	m := &model{Ports: backends.Ports{Sig: sig}, zeros: params.zeros}
	if err := m.pair(config.SignatureOf(cfg).AtModel()); err != nil {
		return nil, err
	}
	if params.creation > 0 {
		if err := pause(ctx, params.creation, nil); err != nil {
			return nil, err
		}
	}
	if params.execute > 0 || params.tracing {
		return &slow{Ports: m.Ports, model: m, params: params}, nil
	}
	return m, nil
}

// pair finds the input of each output. requests is the signature of a single request: ragged inputs have their
// configured dims there.
func (m *model) pair(requests *config.Signature) error {
	sig, name := m.Sig, m.Sig.Model
	for i := range sig.Inputs {
		if err := expect(name, sig.Inputs[i].Name, "INPUT", "OUTPUT", sig.Output); err != nil {
			return err
		}
	}
	m.source = make([]int, len(sig.Outputs))
	for i := range sig.Outputs {
		out := &sig.Outputs[i]
		if err := expect(name, out.Name, "OUTPUT", "INPUT", sig.Input); err != nil {
			return err
		}
		m.source[i] = sig.Input("INPUT" + strings.TrimPrefix(out.Name, "OUTPUT"))
		in := sig.Inputs[m.source[i]]
		if at := requests.Input(in.Name); at >= 0 && in.Unbatched && !out.Unbatched {
			in, m.split = requests.Inputs[at], true
			in.Unbatched = false // as in a request
		}
		if in.DType != out.DType || !sameForm(&in, out, sig.MaxBatch) {
			return status.Errorf(status.InvalidArg, "model '%s': output '%s' is %s, expected %s as input '%s'",
				name, out.Name, describe(out), describe(&in), in.Name)
		}
	}
	return m.checkSplit(requests)
}

// sameForm reports whether an output may hold its input. An output with one value for each row of the batch also
// fits an unbatched input of that shape.
func sameForm(in, out *config.Port, maxBatch int) bool {
	if in.Unbatched && !out.Unbatched {
		return in.Dims.Equal(out.FullDims(maxBatch))
	}
	return in.Unbatched == out.Unbatched && in.Dims.Equal(out.Dims)
}

// describe formats a tensor's type and dims for an error.
func describe(p *config.Port) string {
	text := p.DType.ConfigName() + " " + p.Dims.String()
	if p.Unbatched {
		text += " over the whole batch"
	}
	return text
}

// checkSplit rejects a model that mixes per-request outputs with outputs over the whole batch.
func (m *model) checkSplit(requests *config.Signature) error {
	for i, in := range m.source {
		if m.split && (m.Sig.Outputs[i].Unbatched || in >= len(requests.Inputs)) {
			return status.Errorf(status.InvalidArg, "model '%s': output '%s' is over the whole batch, expected none or all outputs of ragged and computed inputs to be so",
				m.Sig.Model, m.Sig.Outputs[i].Name)
		}
	}
	return nil
}

// expect checks that name is the prefix and a number, and that the matching tensor exists.
func expect(model, name, prefix, partner string, find func(string) int) error {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return status.Errorf(status.InvalidArg, "model '%s': backend 'identity' expects tensors named %s0, %s1, ..., found '%s'", model, prefix, prefix, name)
	}
	if find(partner+digits) < 0 {
		return status.Errorf(status.InvalidArg, "model '%s': '%s' has no partner, expected '%s' in the configuration", model, name, partner+digits)
	}
	return nil
}

// model is a loaded configuration. It has no state, so it is its own instance, which all callers share.
type model struct {
	backends.Ports
	source []int // the input index of each output
	zeros  bool  // omitted optional inputs yield zeros
	// split is set when an output has the batch dimension that its ragged or computed input lacks: each request
	// then has per-request outputs.
	split bool
}

// Inline reports true: an execution takes well under a microsecond.
func (*model) Inline() bool { return true }

// NewInstance returns m. The place does not matter: an instance shares memory and never reads or writes it.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return m, nil
}

// Execute makes each output share its input's memory. This is safe because a tensor with two references is
// immutable.
//
// hot: no allocation unless an input is ragged or absent.
func (m *model) Execute(_ context.Context, b *backends.Batch) error {
	if m.split {
		return m.executeEach(b)
	}
	for port := range m.source {
		if err := m.copy(b, b.In, b.Out, port, b.Rows); err != nil {
			return err
		}
	}
	return nil
}

// executeEach sets per-request outputs from the inputs of each request, as they were before batching.
func (m *model) executeEach(b *backends.Batch) error {
	for k := range b.Requests {
		q := &b.Requests[k]
		q.Out = make([]tensor.Tensor, len(m.source))
		for port := range m.source {
			if err := m.copy(b, q.In, q.Out, port, q.Rows); err != nil {
				return err
			}
		}
	}
	return nil
}

// copy sets an output to its input, or to zeros of the given rows when an optional input is absent.
func (m *model) copy(b *backends.Batch, in, out []tensor.Tensor, port, rows int) (err error) {
	from := &in[m.source[port]]
	out[port].Release()
	if !from.Present() && m.zeros && m.Sig.Inputs[m.source[port]].Optional {
		out[port], err = m.zero(b, port, rows)
		return err
	}
	out[port] = from.Retain()
	return nil
}

// zero returns an output of zeros with size 1 for each variable dimension.
func (m *model) zero(b *backends.Batch, port, rows int) (out tensor.Tensor, err error) {
	p := &m.Sig.Outputs[port]
	var dims []int64
	if m.Sig.MaxBatch > 0 && !p.Unbatched {
		dims = append(dims, int64(rows))
	}
	for _, d := range p.Dims.Dims() {
		if d < 0 {
			d = 1
		}
		dims = append(dims, d)
	}
	shape := tensor.Of(dims...)
	if p.DType == tensor.Bytes {
		out, err = tensor.NewBytes(b.Allocator, shape, int(shape.Elements())*4) // the lengths
	} else {
		out, err = tensor.New(b.Allocator, p.DType, shape)
	}
	if err == nil {
		clear(out.Bytes()) // strings of length 0
	}
	return out, err
}

// slow is a model whose executions are delayed. It is not concurrent: at most one request for each instance waits
// at a time.
type slow struct {
	backends.Ports
	model  *model
	params params
	made   atomic.Int64
}

// Threads returns 0: an execution waits and does not compute.
func (*slow) Threads() int { return 0 }

// NewInstance returns the next instance, with the delay of its number.
func (s *slow) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return &sleeper{s.model, &s.params, s.params.delayOf(int(s.made.Add(1) - 1))}, nil
}

// sleeper is an instance that waits before it responds.
type sleeper struct {
	*model
	params *params
	delay  time.Duration
}

// Execute waits, reports activities and sets the outputs. It fails as cancelled when all clients disconnect.
func (s *sleeper) Execute(ctx context.Context, b *backends.Batch) error {
	if err := pause(ctx, s.delay, b.Requests); err != nil {
		return err
	}
	if s.params.tracing {
		if err := s.params.report(ctx, b.Requests); err != nil {
			return err
		}
	}
	return s.model.Execute(ctx, b)
}

// pause waits for d. It returns ErrCancelled when the batch is cancelled or the clients of all requests disconnect.
func pause(ctx context.Context, d time.Duration, reqs []backends.Request) error {
	over := time.After(d)
	for i := range reqs {
		if reqs[i].Ctx == nil {
			continue
		}
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return status.ErrCancelled
		case <-reqs[i].Ctx.Done():
			if i == len(reqs)-1 {
				return status.ErrCancelled
			}
		}
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return status.ErrCancelled
	}
}

// The parameters of config.pbtxt that the backend reads. All but the last have the names of NVIDIA's backend.
const (
	keyExecute    = "execute_delay_ms"
	keyMultiplier = "instance_wise_delay_multiplier"
	keyCreation   = "creation_delay_sec"
	keyTracing    = "enable_custom_tracing"
	keySpans      = "nested_span_count"
	keyFrequency  = "single_activity_frequency"
	keyZeros      = "absent_as_zeros"
)

// params are the parameters of a model.
type params struct {
	execute    time.Duration
	multiplier int
	creation   time.Duration
	zeros      bool
	// tracing makes each sampled request report spans nested spans, with a single activity in each span whose
	// number is a multiple of frequency.
	tracing          bool
	spans, frequency int
}

// parse reads the parameters of the backend and ignores others.
func parse(model string, given map[string]*modelconfig.ModelParameter) (p params, err error) {
	p.zeros, p.frequency = true, 1
	var execute, creation int
	flags := map[string]*bool{keyZeros: &p.zeros, keyTracing: &p.tracing}
	numbers := map[string]*int{keyExecute: &execute, keyMultiplier: &p.multiplier, keyCreation: &creation, keySpans: &p.spans, keyFrequency: &p.frequency}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		value := given[key].GetStringValue()
		if to := flags[key]; to != nil {
			if *to, err = strconv.ParseBool(value); err != nil {
				return p, status.Errorf(status.InvalidArg, "model '%s': parameter '%s' is '%s', expected true or false", model, key, value)
			}
		}
		if to := numbers[key]; to != nil {
			if *to, err = strconv.Atoi(value); err != nil || *to < 0 || *to > longest {
				return p, status.Errorf(status.InvalidArg, "model '%s': parameter '%s' is '%s', expected an integer from 0 to %d", model, key, value, longest)
			}
		}
	}
	p.execute, p.creation = time.Duration(execute)*time.Millisecond, time.Duration(creation)*time.Second
	p.frequency = max(p.frequency, 1)
	return p, nil
}

// longest bounds a number: as a delay it is days and cannot overflow.
const longest = 1 << 20

// delayOf returns the delay of an instance: execute for instance 0, otherwise execute times the instance's number and
// the multiplier, but at least execute.
func (p *params) delayOf(instance int) time.Duration {
	times := max(1, p.multiplier*instance)
	if p.execute > 0 && times > int(longestDelay/p.execute) {
		return longestDelay
	}
	return p.execute * time.Duration(times)
}

const longestDelay = longest * time.Second

// The activities that a sampled request reports, with the names of NVIDIA's backend.
const (
	activity       = "CUSTOM_ACTIVITY"
	singleActivity = "CUSTOM_SINGLE_ACTIVITY"
	activityTime   = 100 * time.Millisecond
)

// report adds to the trace of each sampled request one span, one single activity and the configured nested spans.
// Each span takes a tenth of a second.
func (p *params) report(ctx context.Context, reqs []backends.Request) error {
	for i := range reqs {
		if q := &reqs[i]; q.Trace.Sampled() {
			if err := p.reportOne(ctx, q, reqs); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *params) reportOne(ctx context.Context, q *backends.Request, reqs []backends.Request) error {
	q.ReportActivity(activity + "_START")
	if err := pause(ctx, activityTime, reqs); err != nil {
		return err
	}
	q.ReportActivity(activity + "_END")
	q.ReportActivity(singleActivity)
	for n := range p.spans {
		q.ReportActivity(activity + strconv.Itoa(n) + "_START")
		if err := pause(ctx, activityTime, reqs); err != nil {
			return err
		}
		if n%p.frequency == 0 {
			q.ReportActivity(singleActivity)
		}
	}
	for n := p.spans - 1; n >= 0; n-- {
		q.ReportActivity(activity + strconv.Itoa(n) + "_END")
	}
	return nil
}
