//go:build cgo

package gpu

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/kernels"
)

// Devices are the open GPUs. They are safe for concurrent use. A nil *Devices has none.
type Devices struct {
	set    Settings
	driver *cuda.Driver
	used   []*cuda.Device
	all    []Info

	once   sync.Once
	pinned *cuda.Pinned
}

// Open opens the driver and describes its GPUs. It makes no context. The error, with code Unavailable, says why no GPU can be used.
func Open(s Settings) (*Devices, error) {
	driver, err := cuda.Open(s.Driver)
	if err != nil {
		return nil, err
	}
	o := cuda.Options{NoPeers: s.NoPeers, Kernels: kernels.Load}
	if s.PinnedSize <= 0 {
		o.Tensors = s.Pools // there is nothing that tensors beyond it could be put into
	}
	list, err := driver.Devices(o)
	if err != nil {
		return nil, err
	}
	d := &Devices{set: s, driver: driver}
	for _, v := range list {
		i := v.Info()
		info := Info{Place: v.Place(), Name: i.Name, Memory: i.Memory, Capability: float64(i.Major) + float64(i.Minor)/10}
		if info.Capability < s.Capability {
			info.Skipped = fmt.Sprintf("compute capability %.1f is below %.1f, see --min-supported-compute-capability", info.Capability, s.Capability)
		} else {
			d.used = append(d.used, v)
		}
		d.all = append(d.all, info)
	}
	if len(d.used) == 0 {
		err := status.Reasonf(status.RuntimeMissing, "the CUDA driver shows no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES")
		if len(d.all) > 0 {
			err = status.Reasonf(status.RuntimeMissing, "%s (%s): %s", d.all[0].Place, d.all[0].Name, d.all[0].Skipped)
		}
		return nil, err
	}
	if err := errors.Join(d.named("--cuda-memory-pool-byte-size", slices.Sorted(maps.Keys(s.Pools))), d.named("--model-load-gpu-limit", s.Limited)); err != nil {
		return nil, err
	}
	return d, nil
}

// named returns an error if an option names a GPU that is not there.
func (d *Devices) named(option string, numbers []int) error {
	for _, n := range numbers {
		if n < 0 || n >= len(d.all) {
			return status.Errorf(status.InvalidArg, "%s names GPU %d, expected 0 to %d", option, n, len(d.all)-1)
		}
	}
	return nil
}

// Version returns the newest CUDA release that the driver supports. For example, "13.0".
func (d *Devices) Version() string { return d.driver.Version() }

// List describes all GPUs, also those that are not used.
func (d *Devices) List() []Info {
	if d == nil {
		return nil
	}
	return d.all
}

// Accelerators returns the GPUs that are used, in order of their number.
func (d *Devices) Accelerators() (list []tensor.Accelerator) {
	if d == nil {
		return nil
	}
	for _, v := range d.used {
		list = append(list, v)
	}
	return list
}

// Pinned returns the pool of pinned memory, nil for none. Beyond its size it gives memory of host. GPUs with a bound on their own pool
// put tensors beyond it into pinned memory, which they read over the bus; without a pool an allocation beyond it fails. All calls return
// the same pool.
func (d *Devices) Pinned(host tensor.Allocator) tensor.Allocator {
	if d == nil || d.set.PinnedSize <= 0 {
		return nil
	}
	d.once.Do(func() {
		d.pinned = cuda.NewPinned(d.used[0], d.set.PinnedSize, host)
		for _, v := range d.used {
			if limit, ok := d.set.Pools[int(v.Place().ID)]; ok {
				v.SpillTo(d.pinned, limit)
			}
		}
	})
	return d.pinned
}

// Watch makes the log say when a GPU is lost, and once for each cause that tensors are in slower memory than they should be. It must
// be called before the GPUs are used.
func (d *Devices) Watch(logger *slog.Logger) {
	if d == nil {
		return
	}
	for _, v := range d.used {
		at := slog.String("device", v.Place().String())
		v.OnLost(func(err error) {
			logger.Error("a GPU is lost: models go on at other places if they have instances there", at, slog.String("reason", err.Error()))
		})
		v.OnSpill(func() {
			logger.Warn("the memory pool of a GPU is full: tensors are in pinned host memory, which the GPU reads over the bus; raise --cuda-memory-pool-byte-size", at)
		})
	}
	if d.pinned != nil {
		d.pinned.OnSpill(func() {
			logger.Warn("the pool of pinned memory is full: tensors are in ordinary host memory, from where copies are slower; raise --pinned-memory-pool-byte-size")
		})
	}
}

// Uses returns the present state of the GPUs that are used, and of the pool of pinned memory as one more.
func (d *Devices) Uses() (list []Use) {
	if d == nil {
		return nil
	}
	for _, v := range d.used {
		list = append(list, Use{Place: v.Place(), Lost: v.Lost() != nil, Spilled: v.Spilled()})
	}
	if d.pinned != nil {
		list = append(list, Use{Place: d.pinned.Place(), Spilled: d.pinned.Spilled()})
	}
	return list
}

// Memory returns the used and the total bytes of a GPU, of all processes; zero before its first use.
func (d *Devices) Memory(number int) (used, total int64, err error) {
	for _, v := range d.used {
		if int(v.Place().ID) == number {
			m, err := v.Usage()
			if m.Free == 0 && m.Reserved == 0 {
				return 0, m.Total, err
			}
			return m.Total - m.Free, m.Total, err
		}
	}
	return 0, 0, status.Errorf(status.NotFound, "there is no GPU %d", number)
}

// Started returns when the first GPU got a context, the zero time if none has one.
func (d *Devices) Started() (first time.Time) {
	if d == nil {
		return first
	}
	for _, v := range d.used {
		if at := v.Started(); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// Close closes the GPUs. Every buffer must be released, and every stream closed. The error names those that are not.
func (d *Devices) Close() error {
	if d == nil {
		return nil
	}
	if d.pinned != nil {
		d.pinned.Close()
	}
	return d.driver.Close()
}
