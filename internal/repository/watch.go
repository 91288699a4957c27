package repository

import (
	"strconv"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// The parameters of a model that bound its executions and the memory of its processes.
const (
	paramWatchdog = "watchdog_secs"
	paramMemory   = "memory_limit_bytes"
)

// watchOf returns the watch of a version, nil if nothing is limited.
func (r *Repository) watchOf(v *version, params map[string]string) (*batch.Watch, error) {
	s := batch.WatchSettings{Limit: r.s.Watchdog, Factor: r.s.WatchdogFactor, Model: v.sig.Model, Stats: v.stats, Log: r.s.Log}
	if text := params[paramWatchdog]; text != "" {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= 0 && n <= 1e6) {
			return nil, status.Errorf(status.InvalidArg, "model '%s' has the parameter %s '%s', expected seconds from 0, for no limit, to 1000000", v.sig.Model, paramWatchdog, text)
		}
		s.Limit = time.Duration(n * float64(time.Second))
	}
	if text := params[paramMemory]; text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, status.Errorf(status.InvalidArg, "model '%s' has the parameter %s '%s', expected a number of bytes, or 0 for no limit", v.sig.Model, paramMemory, text)
		}
		s.Memory = n
	}
	return batch.NewWatch(s), nil
}

// Watch looks for executions that take too long and processes that have too much memory. It is called about every half second.
func (r *Repository) Watch() {
	now := telemetry.Now()
	for _, m := range r.catalog.Load().models {
		for _, v := range m.versions {
			v.watch.Look(now)
		}
	}
}

// Stuck returns why a version is degraded whose executions take too long; empty if none does.
func (r *Repository) Stuck(name string, number int64) string {
	v, err := r.find(name, number)
	if err != nil {
		return ""
	}
	return v.watch.Stuck()
}
