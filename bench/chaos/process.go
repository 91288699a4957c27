package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
)

// introspection is added to cmd/tutti: the server itself has no profiling endpoint.
const introspection = "bench/chaos/testdata/introspect.go.txt"

// build builds the server with the endpoint of profiles and with the profile of leaked goroutines.
func build(ctx context.Context, out string) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	source := filepath.Join(out, "_source", "introspect.go")         // cgo reads files of Go only, and ./... no folder with an underscore
	if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil { //nolint:gosec // no secret
		return "", err
	}
	from, err := os.ReadFile(introspection)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(source, from, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, "cmd/tutti/introspect.go"): source}})
	if err != nil {
		return "", err
	}
	overlay, binary := filepath.Join(out, "overlay.json"), filepath.Join(out, "tutti")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	logf("building the server with profiles")
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, "./cmd/tutti")
	cmd.Env = append(os.Environ(), "GOEXPERIMENT=goroutineleakprofile")
	cmd.Stderr = os.Stderr
	return binary, cmd.Run()
}

// server is the server under test.
type server struct {
	*proc.Process
	metrics string
	socket  string // of its profiles
	scratch string // its folder of temporary files, by which orphaned workers are known
	log     *os.File
	web     http.Client // over the socket
}

// oneArena has the C library allocate in its main arena only. malloc_trim, which measure calls, returns no free memory from the ends of
// the others: what loading models leaves there, 25 to 45 MB with two cores, depends on the threads that happened to load them, and would hide a leak.
const oneArena = "MALLOC_ARENA_MAX=1"

// serve starts a server with the given flags and waits until it is ready.
func serve(ctx context.Context, s *settings, scratch string, args ...string) (*server, error) {
	var ports [3]string
	for i := range ports {
		var err error
		if ports[i], err = proc.FreePort(); err != nil {
			return nil, err
		}
	}
	log, err := os.Create(filepath.Join(s.out, "server.log"))
	if err != nil {
		return nil, err
	}
	v := &server{scratch: scratch, socket: filepath.Join(s.out, "profile.sock"), log: log, metrics: "127.0.0.1:" + ports[2]}
	_ = os.Remove(v.socket)
	v.web.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", v.socket)
	}}
	command := append([]string{
		s.tutti, "serve", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1",
		"--http-port=" + ports[0], "--grpc-port=" + ports[1], "--metrics-port=" + ports[2],
	}, args...)
	// The log goes through a pipe, so that a limit on the server's files does not end it.
	r, w := io.Pipe()
	go func() { _, _ = io.Copy(log, r) }()
	v.Process, err = proc.Start(ctx, &proc.Settings{
		Command: command, Env: []string{"TUTTI_PROFILE=" + v.socket, "TMPDIR=" + scratch, oneArena}, Output: w, HTTP: "127.0.0.1:" + ports[0], GRPC: "127.0.0.1:" + ports[1], Patience: 3 * time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("%w; its log is %s", err, log.Name())
	}
	return v, nil
}

// get reads a page of the profiles.
func (v *server) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+path, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := v.web.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return string(text), err
}

// state is what the server holds at one moment.
type state struct {
	// Goroutines are those of the process without the parked workers of the schedulers' pool, which end when nothing has used them for a while.
	Goroutines  int `json:"goroutines"`
	Parked      int `json:"parked_workers"`
	Descriptors int `json:"descriptors"`
	// Kinds counts the descriptors by their targets, or ports.
	Kinds    map[string]int `json:"descriptor_kinds"`
	Children int            `json:"children"`
	Threads  int            `json:"threads"`
	// Shared are the files of the server and of its children in /dev/shm, and their bytes.
	Shared      []string `json:"shared_memory"`
	SharedBytes int64    `json:"shared_memory_bytes"`
	RSS         int64    `json:"rss"` // of the server; the next three are its parts
	Anonymous   int64    `json:"rss_anonymous"`
	Files       int64    `json:"rss_files"` // programs, libraries and models that are mapped
	Memory      int64    `json:"rss_shared_memory"`
	Tree        int64    `json:"tree_pss"`
	Heap        int64    `json:"go_heap"`
	Active      []string `json:"active"` // metrics of what is under way that are not 0
}

var (
	inUse     = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)`)
	total     = regexp.MustCompile(`(?m)^goroutine profile: total (\d+)`)
	executing = regexp.MustCompile(`^(?:nv_inference_pending_request_count|ensemble_inflight_bytes)(?:\{\S*\})? ([0-9.e+]+)$`)
	inode     = regexp.MustCompile(`\d+`)
)

// measure reads the state after a collection of garbage.
func (v *server) measure(ctx context.Context) (state, error) {
	var s state
	for range 2 { // the second one frees what finalizers of the first have released
		if _, err := v.get(ctx, "/debug/free"); err != nil {
			return s, err
		}
	}
	heap, err := v.get(ctx, "/debug/pprof/heap?debug=1")
	if err != nil {
		return s, err
	}
	routines, err := v.get(ctx, "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return s, err
	}
	s.Parked = parked(routines)
	s.Heap, s.Goroutines = int64(number(inUse, heap)), number(total, routines)-s.Parked
	children, err := v.children()
	if err != nil {
		return s, err
	}
	s.Children = len(children)
	if err := s.descriptors(v.PID()); err != nil {
		return s, err
	}
	if err := s.sharedMemory(append(children, v.PID())); err != nil {
		return s, err
	}
	m, err := v.Memory()
	if err != nil {
		return s, err
	}
	s.Tree = m.Proportional
	s.RSS, s.Threads = fieldOf(v.PID(), "VmRSS:")<<10, int(fieldOf(v.PID(), "Threads:"))
	s.Anonymous, s.Files, s.Memory = fieldOf(v.PID(), "RssAnon:")<<10, fieldOf(v.PID(), "RssFile:")<<10, fieldOf(v.PID(), "RssShmem:")<<10
	s.Active, err = v.active(ctx)
	return s, err
}

// saveMemory writes the mappings of the server, the arenas of its C library and the profile of Go's heap, to find out where memory is.
func (v *server) saveMemory(ctx context.Context, out, name string) {
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", v.PID())) // a missing file shows in the comparison of the states
	arenas, _ := v.get(ctx, "/debug/malloc")
	heap, _ := v.get(ctx, "/debug/pprof/heap?debug=1")
	_, stats, _ := strings.Cut(heap, "# runtime.MemStats")
	_ = os.WriteFile(filepath.Join(out, "memory-"+name+".txt"), []byte(string(maps)+arenas+stats), 0o600)
	profile, _ := v.get(ctx, "/debug/pprof/heap")
	_ = os.WriteFile(filepath.Join(out, "heap-"+name+".pprof"), []byte(profile), 0o600)
}

// children lists the processes of the server besides itself, also those whose parent has been killed.
func (v *server) children() ([]int, error) {
	pids, err := proc.Tree(v.PID())
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && !slices.Contains(pids, pid) && strings.Contains(command(pid), v.scratch) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == v.PID() || command(pid) == "" }), nil
}

// command returns the command line of a process, or "" if it has ended.
func command(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may be gone
	return strings.ReplaceAll(string(text), "\x00", " ")
}

// active lists the metrics of requests, bytes and resources under way that are not 0.
func (v *server) active(ctx context.Context) (list []string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+v.metrics+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if m := executing.FindStringSubmatch(lines.Text()); m != nil && m[1] != "0" {
			list = append(list, lines.Text())
		}
	}
	return list, nil
}

// parked counts the workers of the pool that wait for work: they execute none of its functions besides their loop.
func parked(routines string) (n int) {
	for block := range strings.SplitSeq(routines, "\n\n") {
		if strings.Contains(block, "scheduler.(*Workers).run+") && !strings.Contains(block, "scheduler.(*Workers).help+") {
			count, _, _ := strings.Cut(block, " @")
			k, _ := strconv.Atoi(count[strings.LastIndexByte(count, '\n')+1:])
			n += k
		}
	}
	return n
}

func number(pattern *regexp.Regexp, text string) int {
	m := pattern.FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// fieldOf returns a number of /proc/PID/status.
func fieldOf(pid int, name string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return -1
}

// stateOf returns the state of a process in /proc/PID/status.
func stateOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may be gone
	_, after, _ := strings.Cut(string(text), "State:")
	line, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(line)
}

// descriptors counts the open files of a process.
func (s *state) descriptors(pid int) error {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	peers, err := sockets(pid)
	if err != nil {
		return err
	}
	s.Kinds = map[string]int{}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		s.Descriptors++
		s.Kinds[cmp.Or(peers[to], inode.ReplaceAllString(to, "N"))]++
	}
	return nil
}

// sockets returns the ports of TCP connections and listeners by their names in /proc/PID/fd.
func sockets(pid int) (map[string]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 9 {
			found["socket:["+f[9]+"]"] = fmt.Sprintf("tcp %d to %d", port(f[1]), port(f[2]))
		}
	}
	return found, err
}

// port returns the port of an address in /proc/net/tcp, which is in hexadecimal digits behind a colon.
func port(address string) uint64 {
	_, digits, _ := strings.Cut(address, ":")
	n, _ := strconv.ParseUint(digits, 16, 16)
	return n
}

// sharedMemory lists the files in /dev/shm but those of this program, which have another prefix, and those that a process besides the server
// and its children has mapped: other programs have files there, too.
func (s *state) sharedMemory(server []int) error {
	const dir = "/dev/shm"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ownPrefix) || mappedBeside(server, filepath.Join(dir, e.Name())) {
			continue
		}
		s.Shared = append(s.Shared, e.Name())
		if info, err := e.Info(); err == nil {
			s.SharedBytes += info.Size()
		}
	}
	slices.Sort(s.Shared)
	return nil
}

// mappedBeside reports whether a process that is not in a list has mapped a file.
func mappedBeside(list []int, path string) bool {
	entries, _ := os.ReadDir("/proc") // without it nothing is left out
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(list, pid) {
			continue
		}
		text, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "maps")) // it may be gone
		if strings.Contains(string(text), " "+path+"\n") {
			return true
		}
	}
	return false
}

// compare lists in which way the state after a run differs from the one before. Memory may be 5 % more; all else must be equal. A
// process may have fewer goroutines and threads. memory says whether the resident memory counts.
func (s *state) compare(before *state, memory bool) (faults []string) {
	add := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	add(s.Goroutines <= before.Goroutines, "%d goroutines, %d before", s.Goroutines, before.Goroutines)
	add(s.Descriptors == before.Descriptors, "%d descriptors, %d before: %v, %v before", s.Descriptors, before.Descriptors, s.Kinds, before.Kinds)
	add(s.Children == before.Children, "%d children, %d before", s.Children, before.Children)
	add(slices.Equal(s.Shared, before.Shared), "shared memory %v, %v before", s.Shared, before.Shared)
	add(len(s.Active) == 0, "metrics of what is under way are not 0: %v", s.Active)
	add(!memory || float64(s.RSS) <= 1.05*float64(before.RSS), "%d MB are resident, %d before: more than 5 %% more", s.RSS>>20, before.RSS>>20)
	add(float64(s.Heap) <= 1.05*float64(before.Heap)+1<<20, "%d KB of Go's heap, %d before: more than 5 %% and 1 MB more", s.Heap>>10, before.Heap>>10)
	return faults
}
