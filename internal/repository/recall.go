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

// keeps reports whether the answers of a version are kept. What the configuration says
// of itself was checked before; here it is what the model and the steps say.
func (r *Repository) keeps(v *version) (bool, error) {
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

// remember puts the response cache in front of an ensemble that asks for it.
func (r *Repository) remember(f *folder, v *version) error {
	v.identity = r.identity(f, v)
	keeps, err := r.keeps(v)
	v.stats.Configure(metricsOf(v, keeps))
	if err != nil || !keeps {
		return err
	}
	v.recall = exec.NewResponseCache(v.exec, r.s.Responses, v.identity)
	return nil
}

// metricsOf is what the configuration of a version says about its metrics.
func metricsOf(v *version, keeps bool) *telemetry.Setup {
	s := &telemetry.Setup{Tags: v.cfg.GetMetricTags(), Decoupled: v.sig.Decoupled, Cached: keeps}
	for _, c := range v.cfg.GetModelMetrics().GetMetricControl() {
		if c.GetMetricIdentifier().GetFamily() == telemetry.FirstResponse {
			s.FirstResponse = c.GetHistogramOptions().GetBuckets()
		}
	}
	return s
}

// identity tells a loaded version from every other one that a cache may know. In a
// cache of this process a number does, so that nothing that was loaded before answers.
// A cache that outlives the process knows a version by its name, its configuration and
// its files' names, sizes and times, so that servers of the same files share answers;
// an ensemble by that of its steps besides.
func (r *Repository) identity(f *folder, v *version) cache.Key {
	h := sha256.New()
	w := &walk{out: h}
	w.name(f.key)
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v.sig.Version))) // a hash takes everything
	switch {
	case r.s.Responses == nil:
	case r.s.Responses.Remote():
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(f.cfg)
		if err != nil { // then no other version is this one
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
