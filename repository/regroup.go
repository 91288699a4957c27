package repository

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"tutti/core/config"
	"tutti/core/telemetry"
	"tutti/proto/modelconfig"
)

// contents is a fingerprint of a model's files without its configuration. It is never 0.
func contents(dir string) uint64 {
	h := fnv.New64a()
	w := &walk{out: h, skip: []string{config.FileName, "configs"}}
	w.folder(dir, 0)
	return max(1, h.Sum64())
}

// regroups reports whether now differs from what was loaded in its instances only, so
// that new ones can be made of the model that is open.
func regroups(was, now *folder) bool {
	if was.cfg == nil || was.contents == 0 || was.contents != now.contents || was.dir != now.dir || was.temp != nil || now.temp != nil {
		return false
	}
	if a, b := groupsOf(was.cfg), groupsOf(now.cfg); proto.Equal(a, b) {
		return false // loaded again on purpose
	}
	return proto.Equal(ungrouped(was.cfg), ungrouped(now.cfg))
}

func groupsOf(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	return &modelconfig.ModelConfig{InstanceGroup: cfg.GetInstanceGroup()}
}

func ungrouped(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	rest := proto.CloneOf(cfg)
	rest.InstanceGroup = nil
	return rest
}

// regroup returns a version with other instances of the model that old has open, or nil
// when the model must be loaded. Both hold the model.
func (c *change) regroup(ctx context.Context, m *model, number int64, stats *telemetry.Model) (*version, error) {
	was := c.base.models[m.key]
	if was == nil || !regroups(was.folder, m.folder) {
		return nil, nil //nolint:nilnil // there is nothing to use again
	}
	for _, old := range was.versions {
		if old.sig.Version != number {
			continue
		}
		old.holders.Add(1)
		v, err := c.r.assemble(ctx, m.folder, old.model, stats)
		if err != nil {
			return nil, errors.Join(err, old.release())
		}
		v.holders = old.holders
		c.r.s.Log.DebugContext(ctx, "instances made anew", slog.String("model", m.name), slog.Int64("version", number))
		return v, nil
	}
	return nil, nil //nolint:nilnil // there is nothing to use again
}

// release lets go of the model, which the last holder closes.
func (v *version) release() error {
	if v.holders.Add(-1) > 0 {
		return nil
	}
	return v.model.Close()
}

// holder counts its caller as one who holds a model.
func holder() *atomic.Int32 {
	n := new(atomic.Int32)
	n.Store(1)
	return n
}
