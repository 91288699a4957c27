package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"tutti/proto/inference"
)

// process is a server under measurement.
type process struct {
	cmd  *exec.Cmd
	addr string // host:port of its HTTP front end
	grpc string // and of its gRPC front end
	echo bool   // it is the echo
}

// start runs a command and waits until its health endpoint answers.
func start(addr, name string, args ...string) (*process, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	if strings.Contains(name, "tutti") {
		cmd.Stderr = io.Discard
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, addr: addr}
	if err := p.ready(); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *process) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/v2/health/ready", http.NoBody)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			if err := resp.Body.Close(); err == nil && resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.addr, ctx.Err())
		}
	}
}

func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_ = p.cmd.Wait() // ended by a signal on purpose
	return nil
}

// serve starts the server over the given repositories.
func (b *bench) serve(repositories ...string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	other, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{
		"serve", "--http-address=127.0.0.1", "--http-port=" + port, "--grpc-address=127.0.0.1", "--grpc-port=" + other, "--allow-metrics=false",
	}
	for _, r := range repositories {
		args = append(args, "--model-repository="+r)
	}
	p, err := start("127.0.0.1:"+port, b.tutti, args...)
	if err != nil {
		return nil, err
	}
	p.grpc = "127.0.0.1:" + other
	return p, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// cpu returns the CPU time the process has used: the scheduler's nanosecond count
// summed over its threads, of which Go ends none in normal service.
func (p *process) cpu() (time.Duration, error) {
	dir := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, t := range tasks {
		text, err := os.ReadFile(dir + "/" + t.Name() + "/schedstat")
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// resident returns the process's resident memory in MiB.
func (p *process) resident() (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// serveEcho is the floor: net/http handing a body back, grpc-go handing a tensor back,
// and nothing else. It listens where BENCH_ECHO and BENCH_ECHO_GRPC say.
func serveEcho() error {
	l, err := net.Listen("tcp", os.Getenv("BENCH_ECHO_GRPC"))
	if err != nil {
		return err
	}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32))
	inference.RegisterGRPCInferenceServiceServer(g, echoService{})
	failed := make(chan error, 2)
	go func() { failed <- g.Serve(l) }()
	go func() { failed <- serveHTTPEcho() }()
	return <-failed
}

func serveHTTPEcho() error {
	pool := sync.Pool{New: func() any { return new([]byte) }}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return // the health check
		}
		body := pool.Get().(*[]byte) //nolint:errcheck,forcetypeassert // the pool holds nothing else
		defer pool.Put(body)
		*body = slices.Grow((*body)[:0], int(r.ContentLength))[:r.ContentLength]
		if _, err := io.ReadFull(r.Body, *body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if r.URL.Path == parsingPath {
			answer, err := parseAndPrint(*body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			*body = append((*body)[:0], answer...)
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(*body)))
		if _, err := w.Write(*body); err != nil {
			return
		}
	})
	s := &http.Server{Addr: os.Getenv("BENCH_ECHO"), Handler: handler, ReadHeaderTimeout: time.Minute}
	return s.ListenAndServe()
}
