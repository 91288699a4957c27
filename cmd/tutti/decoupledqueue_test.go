package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDecoupledQueueLimit checks max_queue_size of a decoupled Python model that is busy in execute: one request
// waits in the queue, which has room for one, and the next is refused.
// shows: config.queue_policy
func TestDecoupledQueueLimit(t *testing.T) {
	t.Parallel()
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	root := unpack(t, "testdata/decoupled_queue.txtar")
	entered, leave := filepath.Join(root, "slow", "entered"), filepath.Join(root, "slow", "leave")
	for _, path := range []string{entered, leave} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := serve(t, "--model-repository="+root)
	responses := make(chan string, 3)
	send := func(v int) {
		go func() {
			code, body := post(t, "http://"+a.http+"/v2/models/slow/generate_stream", fmt.Sprintf(`{"IN": %d}`, v))
			responses <- fmt.Sprint(code, " ", body)
		}()
	}
	read := func() {
		if _, err := os.ReadFile(entered); err != nil {
			t.Error(err)
		}
	}
	send(1)
	read()
	send(2)
	send(3)
	if refused := <-responses; !strings.Contains(refused, "Exceeds maximum queue size") {
		t.Errorf("the first to end is %s, want one that is refused", refused)
	}
	for i := range 2 {
		if i > 0 {
			read()
		}
		if err := os.WriteFile(leave, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if served := <-responses; !strings.HasPrefix(served, strconv.Itoa(http.StatusOK)) || !strings.Contains(served, `"OUT":`) {
			t.Errorf("%s, want a response", served)
		}
	}
}
