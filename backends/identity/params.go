package identity

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

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
