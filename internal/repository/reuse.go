package repository

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// contents returns for each version a fingerprint of the files that it is made of: those in
// its folder, and those of the model that are neither a configuration nor a version's. It
// is never 0.
func contents(dir string, versions []int64) map[int64]uint64 {
	shared := fnv.New64a()
	w := &walk{out: shared, skip: func(name string) bool {
		_, version := config.VersionOf(name)
		return version || name == config.FileName || name == "configs"
	}}
	w.folder(dir, 0)
	prints := make(map[int64]uint64, len(versions))
	for _, n := range versions {
		h := fnv.New64a()
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, shared.Sum64())) // a hash takes everything
		w := &walk{out: h}
		w.folder(filepath.Join(dir, strconv.FormatInt(n, 10)), 1)
		prints[n] = max(1, h.Sum64())
	}
	return prints
}

// sameModel reports whether a version is made of the same files by the same configuration
// as it was, but for how many instances there are and which versions are wanted.
func (v *version) sameModel(was, now *folder) bool {
	n := v.sig.Version
	if was.overrideDir != nil || now.overrideDir != nil || was.dir != now.dir || was.contents[n] == 0 || was.contents[n] != now.contents[n] {
		return false
	}
	cfg := ungrouped(now.cfg)
	return proto.Equal(ungrouped(was.cfg), cfg) || proto.Equal(ungrouped(v.cfg), cfg) // what the server shows may come back
}

// ungrouped returns a configuration without what may change while a model is open.
func ungrouped(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	rest := proto.CloneOf(cfg)
	rest.InstanceGroup, rest.VersionPolicy = nil, nil
	return rest
}

// regroup returns a version with other instances of the model that the one that serves has
// open, or nil when the model must be loaded. Both hold the model.
func (c *change) regroup(ctx context.Context, m *model, number int64, stats *telemetry.Model) (*version, error) {
	old := c.served(m.folder, number)
	if old == nil {
		return nil, nil //nolint:nilnil // there is nothing to use again
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

// served returns the version that serves under a number, if a folder has the same model, else nil.
func (c *change) served(f *folder, number int64) *version {
	was := c.base.models[f.key]
	if was == nil || was.folder.cfg == nil || was.ensemble() {
		return nil
	}
	for _, v := range was.versions {
		if v.sig.Version == number && v.sameModel(was.folder, f) {
			return v
		}
	}
	return nil
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
