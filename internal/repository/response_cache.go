package repository

import (
	"crypto/sha256"
	"encoding/binary"
	"log/slog"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
)

// cachesResponses reports whether the responses of a version are cached. The configuration alone was validated
// before; this checks the model and the steps.
func (r *Repository) cachesResponses(v *version) (bool, error) {
	const text = "Response Cache does not currently support model %s with %s. Please disable the response cache."
	if !v.cfg.GetResponseCache().GetEnable() {
		return false, nil
	}
	if v.sig.Decoupled {
		return false, status.Errorf(status.InvalidArg, text, v.sig.Model, "'decoupled' transaction policy")
	}
	for _, used := range v.uses {
		if used.cfg.GetSequenceBatching() != nil {
			return false, status.Errorf(status.InvalidArg, text, v.sig.Model, "sequence batching scheduler")
		}
	}
	if r.s.Responses == nil {
		r.s.Log.Warn("response cache is enabled for a model, but there is none: see --cache-config", slog.String("model", v.sig.Model))
		return false, nil
	}
	return true, nil
}

// addResponseCache puts the response cache in front of an ensemble whose configuration enables it.
func (r *Repository) addResponseCache(f *folder, v *version) error {
	v.identity = r.identity(f, v)
	keeps, err := r.cachesResponses(v)
	v.stats.Configure(metricsOf(v, keeps))
	if err != nil || !keeps {
		return err
	}
	v.responseCache = exec.NewResponseCache(v.exec, r.s.Responses, v.identity)
	return nil
}

// metricsOf returns the metrics settings of a version's configuration.
func metricsOf(v *version, keeps bool) *telemetry.Setup {
	s := &telemetry.Setup{Tags: v.cfg.GetMetricTags(), Decoupled: v.sig.Decoupled, Cached: keeps}
	for _, c := range v.cfg.GetModelMetrics().GetMetricControl() {
		if c.GetMetricIdentifier().GetFamily() == telemetry.FirstResponse {
			s.FirstResponse = c.GetHistogramOptions().GetBuckets()
		}
	}
	return s
}

// identity returns a hash that distinguishes a loaded version from every other one in the cache. In a cache of this
// process it includes the number of the load, so that entries of earlier loads never match. A cache that outlives
// the process identifies a version by its name, its configuration and the names, sizes and times of its files, so
// that servers with the same files share entries. For an ensemble it includes the identities of its steps.
func (r *Repository) identity(f *folder, v *version) cache.Key {
	h := sha256.New()
	w := &walk{out: h}
	w.name(f.key)
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v.sig.Version))) // a hash takes everything
	switch {
	case r.s.Responses == nil:
	case r.s.Responses.Remote():
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(f.cfg)
		if err != nil { // then no other version has the same identity
			text = binary.LittleEndian.AppendUint64(nil, r.loads.Add(1))
		}
		_, _ = h.Write(text)
		w.folder(f.dir, 0)
		for _, used := range v.uses {
			_, _ = h.Write(used.identity[:])
		}
	default:
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, r.loads.Add(1)))
	}
	return cache.Key(h.Sum(nil))
}
