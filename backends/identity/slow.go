package identity

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

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
	for _, key := range slices.Sorted(maps.Keys(given)) {
		value := given[key].GetStringValue()
		switch key {
		case keyExecute:
			p.execute, err = duration(model, key, value, time.Millisecond)
		case keyMultiplier:
			p.multiplier, err = number(model, key, value)
		case keyCreation:
			p.creation, err = duration(model, key, value, time.Second)
		case keyZeros:
			p.zeros, err = flag(model, key, value)
		case keyTracing:
			p.tracing, err = flag(model, key, value)
		case keySpans:
			p.spans, err = number(model, key, value)
		case keyFrequency:
			p.frequency, err = number(model, key, value)
			p.frequency = max(p.frequency, 1)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// longest bounds a number: as a delay it is days and cannot overflow.
const longest = 1 << 20

func flag(model, key, value string) (bool, error) {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, status.Errorf(status.InvalidArg, "model '%s': parameter '%s' is '%s', expected true or false", model, key, value)
	}
	return on, nil
}

func number(model, key, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > longest {
		return 0, status.Errorf(status.InvalidArg, "model '%s': parameter '%s' is '%s', expected an integer from 0 to %d", model, key, value, longest)
	}
	return n, nil
}

func duration(model, key, value string, unit time.Duration) (time.Duration, error) {
	n, err := number(model, key, value)
	return time.Duration(n) * unit, err
}

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
