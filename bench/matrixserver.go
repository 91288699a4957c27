package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
	"github.com/tutti-server/tutti/internal/load"
)

const (
	// peerPatience is the longest time until a peer must be ready. Some peers start many processes.
	peerPatience = 3 * time.Minute
	// idleTime is the time over which servers without requests are measured.
	idleTime = time.Second
)

// contender is a server that can be started with a scenario.
type contender struct {
	name      string
	scenarios []string // that it can serve; nil for all
	start     func(context.Context, *scenario) (*proc.Process, error)
}

// server is a contender that runs.
type server struct {
	*proc.Process
	name string
	can  map[string]bool // the protocols that it supports
}

func (v *server) target() load.Target { return load.Target{HTTP: v.HTTP, GRPC: v.GRPC} }

// contenders finds the servers to compare, our server first.
func (m *matrix) contenders() error {
	m.against = []contender{{name: "tutti", start: m.ours}}
	version, err := output(nil, m.tutti, "version")
	if err != nil {
		return err
	}
	m.report.Versions = append(m.report.Versions, strings.TrimSpace(version))
	if len(m.addresses) > 0 {
		c, err := attached(m.addresses, m.name)
		m.against, m.report.Versions = append(m.against, c), append(m.report.Versions, c.name)
		if err != nil || len(m.peers) == 0 {
			return err
		}
	}
	names := []string(m.peers)
	if len(names) == 0 {
		// A folder without requirements holds files that several peers share.
		pinned, err := filepath.Glob("bench/peers/*/requirements*.txt")
		if err != nil {
			return err
		}
		for _, file := range pinned {
			dir := filepath.Dir(file)
			if _, err := os.Stat(filepath.Join(dir, "start")); err == nil && !slices.Contains(names, filepath.Base(dir)) {
				names = append(names, filepath.Base(dir))
			}
		}
	}
	for _, name := range names {
		if name == "none" {
			continue
		}
		c, err := m.peer(name)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == cannotFetch {
			logf("without %s: %s", name, bytes.TrimSpace(exit.Stderr))
			continue
		}
		if err != nil {
			return err
		}
		m.against = append(m.against, c)
	}
	return nil
}

// ours starts our server over a copy of a scenario's repository.
func (m *matrix) ours(ctx context.Context, s *scenario) (*proc.Process, error) {
	dir, err := os.MkdirTemp(m.work, s.name)
	if err != nil {
		return nil, err
	}
	if err := s.copy(dir, m.instances, m.threads); err != nil {
		return nil, err
	}
	ports, err := freePorts()
	if err != nil {
		return nil, err
	}
	m.socket = dir + ".sock"
	env := []string{profileAddress + "=" + m.socket}
	if s.name == "python3" {
		env = append(env, interpreter()...)
	}
	return m.launch(ctx, "tutti", &proc.Settings{
		Command: append([]string{m.tutti}, append(tuttiArgs(ports, dir), "--allow-client-shm=true")...),
		HTTP:    "127.0.0.1:" + ports[0], GRPC: "127.0.0.1:" + ports[1], Env: env,
	})
}

// interpreter returns the environment in which our server finds a Python with numpy: the user's choice, or the
// Python of Triton's models, so that both servers run the same one, or the packages of the clients.
func interpreter() []string {
	if os.Getenv("TUTTI_PYTHON") != "" {
		return nil
	}
	if home, err := output(nil, "scripts/prepare-triton"); err == nil {
		return []string{"TUTTI_PYTHON=" + filepath.Join(strings.TrimSpace(home), "bin/python3")}
	}
	if path, err := output(nil, "scripts/prepare-conformance", "clients"); err == nil {
		return []string{"PYTHONPATH=" + strings.TrimSpace(path)}
	}
	return nil
}

// peer prepares a peer and reads its version and its scenarios.
func (m *matrix) peer(name string) (c contender, err error) {
	script := filepath.Join("bench/peers", name, "start")
	logf("preparing %s", name)
	query := func(flag string) string {
		text, fault := exec.Command(script, flag).Output() //nolint:gosec // a script of this repository
		if err == nil && fault != nil {
			err = fmt.Errorf("%s %s: %w", script, flag, fault)
		}
		return string(text)
	}
	query("--prepare")
	version := strings.TrimSpace(query("--version"))
	scenarios := strings.Fields(query("--scenarios"))
	m.report.Versions = append(m.report.Versions, version)
	root, fault := os.Getwd()
	return contender{name: name, scenarios: scenarios, start: func(ctx context.Context, s *scenario) (*proc.Process, error) {
		ports, err := freePorts()
		if err != nil {
			return nil, err
		}
		return m.launch(ctx, name, &proc.Settings{
			Command: []string{
				script, "--http", ports[0], "--grpc", ports[1], "--scenario", s.name,
				"--instances", strconv.Itoa(m.instances), "--threads", strconv.Itoa(m.threads), "--models", root,
			},
			HTTP: "127.0.0.1:" + ports[0], GRPC: "127.0.0.1:" + ports[1], Patience: peerPatience,
		})
	}}, errors.Join(err, fault)
}

// launch starts a server and stores its log. If the server does not become ready, the error has the end of the log.
func (m *matrix) launch(ctx context.Context, name string, s *proc.Settings) (*proc.Process, error) {
	log, err := os.Create(m.path(name + ".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the server has its own
	s.Output, s.CPUs = log, m.cpus
	p, err := proc.Start(ctx, s)
	if err == nil {
		return p, nil
	}
	text, fault := os.ReadFile(log.Name())
	return nil, errors.Join(err, fault, fmt.Errorf("the log of %s ends with: %s", name, text[max(0, len(text)-2000):]))
}

// attached returns a contender for a server that already runs, with its own name unless one is given.
func attached(address []string, name string) (contender, error) {
	where, pid := [2]string{}, 0
	copy(where[:], address)
	if len(address) > 2 {
		var err error
		if pid, err = strconv.Atoi(address[2]); err != nil || len(address) > 3 {
			return contender{}, fmt.Errorf("expected host:port, host:port of gRPC and a pid, found '%s'", strings.Join(address, ","))
		}
	}
	if name == "" {
		name = serverName(where[0])
	}
	return contender{name: name, start: func(context.Context, *scenario) (*proc.Process, error) {
		return proc.Attach(pid, where[0], where[1]), nil
	}}, nil
}

// serverName returns a server's name and version from its metadata, or its address.
func serverName(addr string) string {
	var about struct{ Name, Version string }
	resp, err := http.Get("http://" + addr + "/v2") //nolint:gosec // the address is the user's
	if err != nil {
		return addr
	}
	defer resp.Body.Close()
	if json.NewDecoder(resp.Body).Decode(&about) != nil || about.Name == "" {
		return addr
	}
	return about.Name + " " + about.Version
}

// startServers starts all servers of a scenario, each as often as -starts says, and returns the last process of
// each.
func (m *matrix) startServers(ctx context.Context, s *scenario) (up []*server, err error) {
	seconds := map[string][]float64{}
	for round := range m.starts {
		for _, c := range m.against {
			if c.scenarios != nil && !slices.Contains(c.scenarios, s.name) {
				continue
			}
			logf("%s: starting %s", s.name, c.name)
			p, err := c.start(ctx, s)
			if err != nil {
				var exit *proc.ExitError
				if c.name != "tutti" && errors.As(err, &exit) && exit.Code == cannotFetch {
					logf("%s: without %s: %v", s.name, c.name, err)
					continue
				}
				return up, err
			}
			seconds[c.name] = append(seconds[c.name], p.Ready.Seconds())
			if round == m.starts-1 || p.Ready == 0 {
				up = append(up, &server{Process: p, name: c.name})
			} else if err := p.Stop(); err != nil {
				return up, err
			}
		}
	}
	return up, m.idle(s, up, seconds)
}

// idle records the start time of a scenario's servers, and the memory and CPU that they take without requests.
func (m *matrix) idle(s *scenario, up []*server, seconds map[string][]float64) error {
	before := make([]time.Duration, len(up))
	var err error
	for i, v := range up {
		if v.Measured() {
			if before[i], err = v.CPU(); err != nil {
				return err
			}
		}
	}
	began := time.Now()
	time.Sleep(idleTime)
	for i, v := range up {
		if !v.Measured() {
			continue
		}
		after, err := v.CPU()
		if err != nil {
			return err
		}
		share := (after - before[i]).Seconds() / time.Since(began).Seconds()
		mem, err := v.Memory()
		if err != nil {
			return err
		}
		m.report.Starts = append(m.report.Starts, boot{
			Scenario: s.name, Server: v.name, Seconds: median(seconds[v.name]),
			Resident: mib(mem.Resident), Proportional: mib(mem.Proportional), Idle: share,
		})
	}
	return nil
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
