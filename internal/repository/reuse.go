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

// contents returns a fingerprint for each version: of the files in its folder and of the model's other files,
// without configurations and other versions. It is never 0.
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

// sameModel reports whether the version has the same files and the same configuration in both folders. Instance
// groups and the version policy are ignored.
func (v *version) sameModel(was, now *folder) bool {
	n := v.sig.Version
	if was.overrideDir != nil || now.overrideDir != nil || was.dir != now.dir || was.contents[n] == 0 || was.contents[n] != now.contents[n] {
		return false
	}
	cfg := ungrouped(now.cfg)
	return proto.Equal(ungrouped(was.cfg), cfg) || proto.Equal(ungrouped(v.cfg), cfg) // a client may send back the completed configuration
}

// ungrouped returns a configuration without the parts that may change while the model is open.
func ungrouped(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	rest := proto.CloneOf(cfg)
	rest.InstanceGroup, rest.VersionPolicy = nil, nil
	return rest
}

// regroup returns a version with new instances of the model that the serving version has open, or nil if the model
// must be loaded. Both versions hold the model.
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

// served returns the serving version with this number if a folder has the same model, else nil.
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

// release gives up the model. The last holder closes it.
func (v *version) release() error {
	if v.holders.Add(-1) > 0 {
		return nil
	}
	return v.model.Close()
}

// holder returns a count with one holder.
func holder() *atomic.Int32 {
	n := new(atomic.Int32)
	n.Store(1)
	return n
}
