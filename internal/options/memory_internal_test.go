package options

import (
	"io/fs"
	"math"
	"testing"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	const meminfo = "MemFree: 1 kB\nMemTotal:       1000 kB\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known": {nil, math.MaxInt64},
		"machine":          {map[string]string{"/proc/meminfo": meminfo}, 1024000},
		"no numbers":       {map[string]string{"/proc/meminfo": "MemTotal: many kB", "/sys/fs/cgroup/memory.max": "max\n"}, math.MaxInt64},
		"container": {map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "4096\n",
		}, 4096},
		"group above": {map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/memory.max": "8192\n",
		}, 8192},
		"first version": {map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/1\nbroken\n",
			"/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "9223372036854771712\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "12288",
		}, 12288},
		"no group": {map[string]string{"/sys/fs/cgroup/memory.max": "4096\n"}, 4096},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := memory(func(name string) ([]byte, error) {
				if text, ok := tt.files[name]; ok {
					return []byte(text), nil
				}
				return nil, fs.ErrNotExist
			})
			if got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

func TestInFlightBytes(t *testing.T) {
	t.Parallel()
	none := int64(0)
	for _, tt := range []struct {
		l         Limits
		low, high int64
	}{
		{Limits{InFlight: &none}, 0, 0},
		{Limits{}, 1 << 20, 1 << 50},
	} {
		if got := tt.l.InFlightBytes(); got < tt.low || got > tt.high {
			t.Errorf("%d, want %d to %d", got, tt.low, tt.high)
		}
	}
}
