package repository

import (
	"strconv"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// The parameters of a model that bound its executions and the memory of its processes.
const (
	paramWatchdog = "watchdog_secs"
	paramMemory   = "memory_limit_bytes"
)

// watchOf returns the watch of a version, nil if nothing is limited. It runs until version.closeModel.
func (r *Repository) watchOf(v *version, params map[string]string) (*batch.Watch, error) {
	s := batch.WatchSettings{Limit: r.s.Watchdog, Factor: r.s.WatchdogFactor, Model: v.sig.Model, Stats: v.stats, Log: r.s.Log}
	if text := params[paramWatchdog]; text != "" {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n != 0 && !(n >= 1e-3 && n <= 1e6) {
			return nil, status.Errorf(status.InvalidArg, "model '%s' has the parameter %s '%s', expected seconds from 0.001 to 1000000, or 0 for no limit", v.sig.Model, paramWatchdog, text)
		}
		s.Limit = time.Duration(n * float64(time.Second))
	}
	if text := params[paramMemory]; text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, status.Errorf(status.InvalidArg, "model '%s' has the parameter %s '%s', expected a number of bytes up to 9223372036854775807, or 0 for no limit", v.sig.Model, paramMemory, text)
		}
		s.Memory = n
	}
	w := batch.NewWatch(s)
	w.Start()
	return w, nil
}

// Stuck returns why a version is degraded whose executions take too long, and since when; empty if none does.
func (r *Repository) Stuck(name string, number int64) (reason string, since time.Time) {
	v, err := r.find(name, number)
	if err != nil {
		return "", time.Time{}
	}
	reason, at := v.watched().Stuck()
	return reason, time.Now().Add(time.Duration(at - telemetry.Now()))
}

// Degraded returns why a version is degraded of which some instances have no process, and since when, zero if that is not known; empty if
// all have one.
func (r *Repository) Degraded(name string, number int64) (reason string, since time.Time) {
	v, err := r.find(name, number)
	if err != nil {
		return "", time.Time{}
	}
	if x := v.residency; x != nil {
		if !x.use.TryRLock() { // it is being evicted or loaded
			return "", time.Time{}
		}
		defer x.use.RUnlock()
	}
	if m, ok := v.model.(backends.Degrader); ok {
		return m.Degraded()
	}
	return "", time.Time{}
}

// Evicted returns the reason of a version in the index that is not loaded until its next request; empty for any other.
func (r *Repository) Evicted(name string, number int64) string {
	v, err := r.find(name, number)
	if err != nil {
		return ""
	}
	return v.residency.reason()
}

// watched returns the watch of a version. That of a model that can be evicted changes, and is nil meanwhile.
func (v *version) watched() *batch.Watch {
	if x := v.residency; x != nil {
		if !x.use.TryRLock() { // it is being evicted or loaded
			return nil
		}
		defer x.use.RUnlock()
	}
	return v.watch
}
