package proc_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/bench/proc"
)

// role names the variable that makes this program one of the servers of the tests.
const role = "PROC_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "burn":
		burn()
	case "fail":
		os.Exit(3)
	case "never":
		wait()
	case "server":
		serve()
	}
}

// spent is the CPU time that a child of the server burns before it ends.
const spent = 200 * time.Millisecond

func burn() {
	var ts unix.Timespec
	for ts.Nano() < spent.Nanoseconds() {
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
			panic(err)
		}
	}
}

func wait() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	<-c
}

func become(name string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), role+"="+name)
	if err := c.Start(); err != nil {
		panic(err)
	}
	return c
}

// serve starts a child that keeps running, and is ready when a second child has used its CPU time and ended.
func serve() {
	stays := become("never")
	if err := become("burn").Wait(); err != nil {
		panic(err)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/health/ready" {
			http.NotFound(w, r)
		}
	})
	l, err := net.Listen("tcp", os.Getenv("PROC_TEST_ADDRESS"))
	if err != nil {
		panic(err)
	}
	go http.Serve(l, h)
	wait()
	stays.Process.Kill()
}

func settings(t *testing.T, name string) *proc.Settings {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	port, err := proc.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	at := "127.0.0.1:" + port
	return &proc.Settings{Command: []string{self}, Env: []string{role + "=" + name, "PROC_TEST_ADDRESS=" + at}, HTTP: at}
}

func pidOf(t *testing.T) int {
	t.Helper()
	all, err := proc.Tree(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(pid int) bool {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		return err == nil && strings.Contains(string(text), role+"=server\x00")
	})
	if i < 0 {
		t.Fatal("the server is none of this process's")
	}
	return all[i]
}

// TestServer checks the figures of a server with one running child and one that ended.
func TestServer(t *testing.T) { //nolint:paralleltest // it looks for its server among all children
	p, err := proc.Start(t.Context(), settings(t, "server"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Ready <= 0 || !p.Measured() {
		t.Errorf("ready after %v", p.Ready)
	}
	pid := pidOf(t)
	tree, err := proc.Tree(pid)
	if err != nil || len(tree) != 2 || tree[0] != pid {
		t.Errorf("tree of %d is %v, %v, want it and one more", pid, tree, err)
	}
	// The kernel counts ended children in ticks.
	if cpu, err := p.CPU(); err != nil || cpu < spent-20*time.Millisecond {
		t.Errorf("CPU %v, %v, want %v at least", cpu, err, spent)
	}
	m, err := p.Memory()
	if err != nil || m.Resident < 1<<20 || m.Proportional <= 0 || m.Proportional > m.Resident {
		t.Errorf("memory %+v, %v", m, err)
	}
	for range 2 {
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if tree, err := proc.Tree(pid); err != nil || len(tree) != 0 {
		t.Errorf("after its end %v are left, %v", tree, err)
	}
	if _, err := p.CPU(); err == nil {
		t.Error("the CPU time of what ended is no error")
	}
	if _, err := p.Memory(); err == nil {
		t.Error("the memory of what ended is no error")
	}
}

func TestStartFails(t *testing.T) { //nolint:paralleltest // TestServer looks among all children
	var exit *proc.ExitError
	if _, err := proc.Start(t.Context(), settings(t, "fail")); !errors.As(err, &exit) || exit.Code != 3 {
		t.Errorf("%v, want an exit with 3", err)
	}
	s := settings(t, "never")
	s.Patience = 50 * time.Millisecond
	if _, err := proc.Start(t.Context(), s); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want that it took too long", err)
	}
	s.Command = []string{"/no such thing"}
	if _, err := proc.Start(t.Context(), s); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that it is not there", err)
	}
}

// TestAttach checks that an attached server is measured but not stopped.
func TestAttach(t *testing.T) {
	t.Parallel()
	p := proc.Attach(os.Getpid(), "a", "b")
	if cpu, err := p.CPU(); err != nil || cpu <= 0 || p.HTTP != "a" || p.GRPC != "b" {
		t.Errorf("CPU %v, %v", cpu, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if proc.Attach(0, "a", "").Measured() {
		t.Error("without a pid it is measured")
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ all, servers, clients []int }{
		{[]int{0}, nil, nil},
		{[]int{0, 1, 2}, nil, nil},
		{[]int{0, 1, 2, 3}, []int{0, 1}, []int{2, 3}},
		{[]int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}, []int{1, 3, 5, 7, 9, 11, 13, 15, 17}, []int{19, 21, 23}},
	} {
		servers, clients := proc.Share(tt.all)
		if !slices.Equal(servers, tt.servers) || !slices.Equal(clients, tt.clients) {
			t.Errorf("%v are split into %v and %v, want %v and %v", tt.all, servers, clients, tt.servers, tt.clients)
		}
	}
	servers, clients, err := proc.Split()
	var own unix.CPUSet
	if err := errors.Join(err, unix.SchedGetaffinity(0, &own)); err != nil {
		t.Fatal(err)
	}
	if n := len(servers) + len(clients); n != 0 && n != own.Count() {
		t.Errorf("%d CPUs are split into %v and %v", own.Count(), servers, clients)
	}
}

// TestPin checks that pinning to all CPUs of this process succeeds and leaves the CPUs of every thread unchanged.
func TestPin(t *testing.T) { //nolint:paralleltest // threads come and go in other tests
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	var all []int
	for c := 0; len(all) < before.Count(); c++ {
		if before.IsSet(c) {
			all = append(all, c)
		}
	}
	if err := errors.Join(proc.Pin(all), unix.SchedGetaffinity(0, &after)); err != nil || before != after {
		t.Errorf("%d CPUs, then %d, %v", before.Count(), after.Count(), err)
	}
}

// TestPinned checks that a child runs on the given CPUs from its start.
func TestPinned(t *testing.T) { //nolint:paralleltest // TestServer looks among all children
	var s unix.CPUSet
	if err := unix.SchedGetaffinity(0, &s); err != nil {
		t.Fatal(err)
	}
	first := 0
	for !s.IsSet(first) {
		first++
	}
	set := settings(t, "server")
	set.CPUs = []int{first}
	p, err := proc.Start(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	var got, own unix.CPUSet
	if err := errors.Join(unix.SchedGetaffinity(pidOf(t), &got), unix.SchedGetaffinity(0, &own)); err != nil {
		t.Fatal(err)
	}
	if got.Count() != 1 || !got.IsSet(first) || own != s {
		t.Errorf("the server may run on %d CPUs, this process on %d", got.Count(), own.Count())
	}
}
