package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	// profileSource is added to cmd/tutti in a build with profiles. The server itself has no profiling endpoint.
	profileSource  = "bench/testdata/profile.go.txt"
	profileAddress = "TUTTI_PROFILE" // the variable that names the socket of the profiles
)

// profiled builds a server with a profiling endpoint, which the matrix then measures.
func (m *matrix) profiled() error {
	if err := os.MkdirAll(m.profile, 0o755); err != nil { //nolint:gosec // the profiles are readable by all users
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(root, "cmd/tutti/profile.go"): filepath.Join(root, profileSource)},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(m.path("overlay.json"), text, 0o600); err != nil {
		return err
	}
	m.tutti = m.path("tutti")
	logf("building a server that can be profiled")
	_, err = output(nil, "go", "build", "-trimpath", "-overlay", m.path("overlay.json"), "-o", m.tutti, "./cmd/tutti")
	return err
}

// keepProfile writes a profile of our server at a point of the matrix, after the measurement there.
func (m *matrix) keepProfile(c *cell, s *scenario, ours *server) (err error) {
	if m.profile == "" || !ours.can[c.Protocol] {
		return nil
	}
	g, err := load.Dial(ours.target(), c.Protocol, s.requests, c.Clients)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	seconds := int(max(m.time, time.Second).Seconds())
	failed := make(chan error, 1)
	name := filepath.Join(m.profile, fmt.Sprintf("%s-%s-%d.pprof", c.Scenario, c.Protocol, c.Clients))
	go func() { failed <- fetchProfile(m.socket, name, seconds) }()
	_, err = load.Run(g.Clients, load.Plan{Duration: time.Duration(seconds)*time.Second + 200*time.Millisecond})
	return errors.Join(err, <-failed)
}

// fetchProfile writes a CPU profile of the given number of seconds.
func fetchProfile(socket, name string, seconds int) (err error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	resp, err := client.Get(fmt.Sprintf("http://server/debug/pprof/profile?seconds=%d", seconds))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server gives no profile: %s", resp.Status)
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}
