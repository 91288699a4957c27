package redis_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/addresstest"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/cache/redis"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// freePort returns a port on which no server listens.
func freePort(t *testing.T) int {
	t.Helper()
	return int(netip.MustParseAddrPort(addresstest.Unused(t)).Port())
}

// server starts a Redis server on port and returns a function that stops it.
func server(t *testing.T, port int) (stop func()) {
	t.Helper()
	exe := preparedtest.Script(t, "redis", "prepare-redis")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, exe, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", //nolint:gosec // found above
		"--requirepass", "secret", "--dir", t.TempDir())
	var log bytes.Buffer
	cmd.Stdout = &log
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}
	t.Cleanup(stop)
	return stop
}

func open(t *testing.T, a tensor.Allocator, port int, more map[string]string) *redis.Cache {
	t.Helper()
	settings := map[string]string{"host": "127.0.0.1", "port": strconv.Itoa(port), "password": "wrong"}
	maps.Copy(settings, more)
	config, err := redis.Parse(settings, []string{"TRITONCACHE_REDIS_PASSWORD=secret"})
	if err != nil {
		t.Fatal(err)
	}
	c := redis.New(redis.Settings{Config: config, Alloc: a, Log: slog.New(slog.DiscardHandler), ProbeEvery: time.Millisecond})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func answer(t *testing.T, a tensor.Allocator) []tensor.Tensor {
	t.Helper()
	x, err := tensor.New(a, tensor.FP32, tensor.Of(2, 1))
	if err != nil {
		t.Fatal(err)
	}
	copy(x.Bytes(), "abcdefgh")
	y, err := tensor.NewBytes(a, tensor.Of(1), 6)
	if err != nil {
		t.Fatal(err)
	}
	copy(y.Bytes(), "\x02\x00\x00\x00hi")
	return []tensor.Tensor{x, {}, y}
}

// until repeats so until it returns true.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	for !so() {
		select {
		case <-limit.C:
			t.Fatal(what)
		default:
		}
	}
}

// TestRedis checks that a response is stored in a server, is lost with the server, and is stored again in another
// one.
// shows: cache.redis
func TestRedis(t *testing.T) {
	t.Parallel()
	a, port, key := tensortest.NewChecked(t, nil), freePort(t), &cache.Key{7, '\n', 0}
	stop := server(t, port)
	c := open(t, a, port, nil)
	want := answer(t, a)
	defer tensor.ReleaseAll(want)
	kept := func() bool {
		c.Insert(key, want)
		out := make([]tensor.Tensor, 3)
		found := c.Lookup(t.Context(), key, out)
		if found && (string(out[0].Bytes()) != "abcdefgh" || out[1].Present() || string(out[2].Bytes()) != "\x02\x00\x00\x00hi" || out[0].Shape.String() != "[2,1]") {
			t.Errorf("the answer came back as %+v", out)
		}
		tensor.ReleaseAll(out)
		return found
	}
	until(t, "no answer is kept", func() bool { return kept() && c.Lost() == nil })
	if c.Lookup(t.Context(), &cache.Key{8}, make([]tensor.Tensor, 3)) {
		t.Error("an unknown key is found")
	}
	if c.Lookup(t.Context(), key, make([]tensor.Tensor, 2)) {
		t.Error("an answer of another number of outputs is found")
	}
	stop()
	until(t, "the end of the server is not noticed", func() bool { return !kept() && c.Counts().Errors > 1 && c.Lost() != nil })
	server(t, port)
	until(t, "no answer is kept after the server came back", func() bool { return kept() && c.Lost() == nil })
}

// TestDead checks lookups where no server listens, and where a server does not respond.
func TestDead(t *testing.T) {
	t.Parallel()
	a := tensortest.NewChecked(t, nil)
	silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at the end
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	want := answer(t, a)
	defer tensor.ReleaseAll(want)
	for _, port := range []int{freePort(t), silent.Addr().(*net.TCPAddr).Port} { //nolint:forcetypeassert // a TCP listener's
		c := open(t, a, port, map[string]string{"connect_timeout": "50", "socket_timeout": "50"})
		for range 100 {
			c.Insert(&cache.Key{1}, want)
			if c.Lookup(t.Context(), &cache.Key{1}, make([]tensor.Tensor, 3)) {
				t.Error("nobody is there, and answers")
			}
		}
		if n := c.Counts(); n.Dropped != 100 || n.Lookups != 100 || n.Hits != 0 {
			t.Errorf("counts %+v", n)
		}
	}
}
