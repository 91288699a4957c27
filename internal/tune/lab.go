package tune

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/procfs"

	"github.com/tutti-server/tutti/internal/lab"
)

// bench is a loaded repository whose executions are timed.
type bench struct {
	*lab.Lab
	s *Settings
}

// openLab loads models with the models that they use. It fails if one of them cannot be loaded.
func openLab(ctx context.Context, s *Settings, root string, models ...string) (*bench, error) {
	l, err := lab.Open(ctx, &lab.Settings{Components: s.Components, BackendConfig: s.BackendConfig, Accelerators: s.Accelerators}, root, models...)
	if err != nil {
		return nil, err
	}
	return &bench{l, s}, nil
}

// leastTimed is how long something is executed again and again to measure its time.
const leastTimed = 10 * time.Millisecond

// timed executes a request so often that the time can be measured, and returns the mean wall and processor time.
func (l *bench) timed(ctx context.Context, c *lab.Call) (wall, cpu time.Duration, err error) {
	least := l.s.length(leastTimed)
	n := 0
	before, began := processTime(), time.Now()
	for ; n == 0 || time.Since(began) < least; n++ {
		if err := l.Once(ctx, c); err != nil {
			return 0, 0, err
		}
	}
	return time.Since(began) / time.Duration(n), (processTime() - before) / time.Duration(n), nil
}

// machineTime returns the processor time of all processes of the machine; 0 where it is not known.
func machineTime() time.Duration {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	s, err := fs.Stat()
	if err != nil {
		return 0
	}
	t := &s.CPUTotal
	return time.Duration((t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal) * float64(time.Second))
}

// variant is the name of a copy of a model that executes so. For example, "minilm--threads-2--version-3".
func variant(model string, x Execution) string {
	name := model + "--threads-" + strconv.Itoa(x.Threads)
	if x.Version != (Version{}) {
		name += "--version-" + strconv.FormatInt(x.Version.Number, 10)
	}
	return name
}
