package memory

import (
	"bufio"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestUse checks where the use is read from.
func TestUse(t *testing.T) {
	t.Parallel()
	const meminfo = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  Use
	}{
		"nothing": {nil, Use{}},
		"machine": {map[string]string{"/proc/meminfo": meminfo}, Use{600 << 10, 1000 << 10, "the machine", true}},
		"group": {map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/b/memory.current": "700\n",
			"/sys/fs/cgroup/a/memory.max": "1000\n", "/sys/fs/cgroup/a/memory.current": "900\n", "/sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 150\n",
		}, Use{750, 1000, "control group /a", true}},
		"least room": {map[string]string{
			"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "1000\n", "/sys/fs/cgroup/a/b/memory.current": "900\n",
			"/sys/fs/cgroup/a/memory.max": "10000\n", "/sys/fs/cgroup/a/memory.current": "5000\n",
		}, Use{900, 1000, "control group /a/b", false}},
		"container": {map[string]string{"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "100\n", "/sys/fs/cgroup/memory.current": "10\n"}, Use{10, 100, "control group /", false}},
		"malformed": {map[string]string{"/proc/meminfo": "MemTotal:\nMemTotal: x kB\n", "/proc/self/cgroup": "0:", "/sys/fs/cgroup/memory.max": "-5", "/sys/fs/cgroup/memory.current": ""}, Use{}},
	} {
		m := New(0)
		m.read = func(path string) ([]byte, error) {
			text, ok := tt.files[path]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		}
		if got := m.Use(); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestRoom checks what may be allocated at once.
func TestRoom(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		used   int64
		shared bool
		want   int64
	}{{0, false, 950}, {900, false, 50}, {970, false, 0}, {970, true, 30}, {1000, true, 0}, {1200, true, 0}} {
		u := Use{tt.used * 1000, 1000 * 1000, "x", tt.shared}
		if got := u.Room(); got != tt.want*1000 {
			t.Errorf("%+v: room of %d, want %d", u, got, tt.want*1000)
		}
	}
}

// TestWatch checks the two marks.
func TestWatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		used, own         int64
		shared, full, had bool
	}{
		{949, 949, false, false, false},
		{950, 0, false, true, false},
		{920, 0, false, true, true},
		{899, 899, false, false, true},
		{990, 100, true, false, false}, // others have filled the machine
		{990, 494, true, false, false},
		{990, 495, true, true, false},
		{920, 380, true, true, true},
		{920, 360, true, false, true},
		{899, 899, true, false, true},
	} {
		u := Use{tt.used * 1000, 1000 * 1000, "x", tt.shared}
		mark, share := int64(high), int64(highShare)
		if tt.had {
			mark, share = low, lowShare
		}
		if got := u.above(mark, share, func() int64 { return tt.own * 1000 }); got != tt.full {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
	m := New(0)
	used := make(chan string, 3)
	for _, n := range []string{"96", "93", "80"} {
		used <- n
	}
	m.read = func(path string) ([]byte, error) {
		switch path {
		case "/sys/fs/cgroup/memory.max":
			return []byte("100000"), nil
		case "/sys/fs/cgroup/memory.current":
			return []byte(<-used + "000"), nil
		}
		return nil, fs.ErrNotExist
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got []error
	m.Watch(ctx, func(why error) {
		if got = append(got, why); why == nil {
			cancel()
		}
	})
	if len(got) != 2 || got[0] == nil || !strings.Contains(got[0].Error(), "96000 of the 100000 bytes of control group / are in use") {
		t.Errorf("got %v", got)
	}
}

// TestWatchMachine checks a machine that others fill first, and then the server.
func TestWatchMachine(t *testing.T) {
	t.Parallel()
	m := New(0)
	m.read = func(path string) ([]byte, error) {
		if path == "/proc/meminfo" {
			return []byte("MemTotal: 1000 kB\nMemAvailable: 20 kB\n"), nil
		}
		return nil, fs.ErrNotExist
	}
	own := make(chan int64, 4)
	for _, n := range []int64{10, 600, 600, 10} { // a look, a look with the text, a look
		own <- n << 10
	}
	m.own = func() int64 { return <-own }
	ctx, cancel := context.WithCancel(t.Context())
	var got []error
	m.Watch(ctx, func(why error) {
		if got = append(got, why); why == nil {
			cancel()
		}
	})
	const want = "1003520 of the 1024000 bytes of the machine are in use, 614400 of them by the server and its child processes"
	if len(got) != 2 || got[0] == nil || !strings.Contains(got[0].Error(), want) {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestResident measures this process with a child.
func TestResident(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "echo; read x") // it ends with its input
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	own, all := Resident(cmd.Process.Pid), Resident(os.Getpid())
	if own <= 0 || all <= own {
		t.Errorf("the child has %d bytes, all have %d", own, all)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
