package async

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
)

// secretFile writes two secrets, of which one is in the form of the specification.
func secretFile(t *testing.T) (string, [][]byte) {
	t.Helper()
	keys := [][]byte{[]byte(strings.Repeat("k", 32)), []byte(strings.Repeat("l", 24))}
	text := "whsec_" + base64.StdEncoding.EncodeToString(keys[0]) + "\n" + base64.StdEncoding.EncodeToString(keys[1]) + "\n"
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, keys
}

func callbacks(t *testing.T, allowed ...string) *Callbacks {
	t.Helper()
	path, _ := secretFile(t)
	c, err := NewCallbacks(allowed, path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCallback delivers a callback to a receiver that refuses it twice, and checks its signatures as the specification says.
func TestCallback(t *testing.T) {
	t.Parallel()
	_, keys := secretFile(t)
	var calls, redirected atomic.Int32
	got := make(chan event, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/elsewhere" {
			redirected.Add(1)
			return
		}
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case 2:
			http.Redirect(w, q, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		signatures := strings.Fields(q.Header.Get("webhook-signature"))
		for i, key := range keys {
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(q.Header.Get("webhook-id") + "." + q.Header.Get("webhook-timestamp") + "." + string(body)))
			if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); len(signatures) != len(keys) || signatures[i] != want {
				t.Errorf("signatures %q, want %q at %d", signatures, want, i)
			}
		}
		var e event
		if err := json.Unmarshal(body, &e); err != nil || e.Data.ID != q.Header.Get("webhook-id") || len(body) > 1024 {
			t.Errorf("%s: %v", body, err)
		}
		got <- e
	}))
	t.Cleanup(receiver.Close)
	r := newRig(t, func(s *Settings) { s.Callbacks = callbacks(t, strings.TrimPrefix(receiver.URL, "http://")) })
	st := r.submit(strings.Repeat("x", 10_000), receiver.URL+"/done?token=hidden")
	if st.Callback == nil || st.Callback.State != job.DeliveryWaiting {
		t.Errorf("at first: %+v", st)
	}
	r.work()
	e := <-got
	if e.Type != "infer.succeeded" || e.Data.ID != st.ID || e.Data.Model != "echo" || e.Data.ResultURL != st.ResultURL || e.Data.Code != 200 {
		t.Errorf("event %+v", e)
	}
	now := r.await(st.ID, "delivered", func(st *job.RequestStatus) bool { return st.Callback != nil && st.Callback.State == job.Delivered })
	if now.Callback.Attempts != 3 || now.Callback.Ended.IsZero() || now.Callback.Error != "" || redirected.Load() != 0 {
		t.Errorf("delivered: %+v, %d redirects followed", now.Callback, redirected.Load())
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "temporal", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of Temporal: %v", err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(f); err != nil || strings.Contains(string(text), "token=hidden") {
			t.Errorf("%s has the URL of a callback: %v", f, err)
		}
	}
}

// TestBadReceivers has receivers that hang, that want no callback, and an address that is not allowed when it is dialled. The results are
// there.
func TestBadReceivers(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
			return
		}
		<-over
	}))
	t.Cleanup(func() { close(over); receiver.Close() })
	address := strings.TrimPrefix(receiver.URL, "http://")
	port := address[strings.LastIndexByte(address, ':'):]
	c := callbacks(t, address, "localhost.localdomain"+port)
	c.client.Timeout = 100 * time.Millisecond
	r := newRig(t, func(s *Settings) { s.Callbacks = c })
	r.work()
	hangs, gone := r.submit("a", receiver.URL+"/hangs").ID, r.submit("b", receiver.URL+"/gone").ID
	st := r.await(hangs, "tried twice", func(st *job.RequestStatus) bool {
		return st.Callback != nil && st.Callback.Attempts > 1 && st.Callback.Error != ""
	})
	if st.State != job.Succeeded || st.Callback.State != job.DeliveryPending || r.result(hangs) != "a" {
		t.Errorf("a receiver that hangs: %+v, %+v", st, st.Callback)
	}
	st = r.await(gone, "failed", func(st *job.RequestStatus) bool { return st.Callback != nil && st.Callback.State == job.DeliveryFailed })
	if st.Callback.Attempts != 1 || !strings.Contains(st.Callback.Error, "410 Gone") || r.result(gone) != "b" {
		t.Errorf("a receiver that is gone: %+v", st.Callback)
	}
}

// TestCallbackHosts checks URLs and addresses against allow lists.
func TestCallbackHosts(t *testing.T) {
	t.Parallel()
	c := callbacks(t, "hooks.example.com", "*.example.org:8443", "10.1.0.0/16", "127.0.0.1:9000", "[2001:db8::1]")
	for url, want := range map[string]bool{
		"https://hooks.example.com/a":                              true,
		"http://HOOKS.example.com.:80/a":                           true,
		"https://hooks.example.com:8443/a":                         false,
		"https://a.b.example.org:8443":                             true,
		"https://example.org:8443":                                 false,
		"https://evilexample.org:8443":                             false,
		"https://a.example.org":                                    false,
		"https://hooks.example.com.evil.com":                       false,
		"https://hooks.example.com@evil.com":                       false,
		"https://u:p@hooks.example.com":                            false,
		"ftp://hooks.example.com":                                  false,
		"file:///etc/passwd":                                       false,
		"hooks.example.com":                                        false,
		"http://10.1.2.3":                                          true,
		"http://10.2.0.1":                                          false,
		"http://127.0.0.1:9000/":                                   true,
		"http://127.0.0.1:9001/":                                   false,
		"http://[2001:db8::1]/":                                    true,
		"http://[::ffff:10.1.0.1]/":                                true,
		"http://169.254.169.254/latest":                            false,
		"https://hooks.example.com/" + strings.Repeat("a", maxURL): false,
	} {
		if err := c.check(url); (err == nil) != want || err != nil && status.CodeOf(err) != status.InvalidArg {
			t.Errorf("%s: %v, want allowed: %v", url, err, want)
		}
	}
	if err := c.check("https://evil.com"); err == nil || !strings.Contains(err.Error(), "--callback-host") {
		t.Errorf("a host that is not allowed: %v", err)
	}
	if err := (*Callbacks)(nil).check("https://a.com"); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "--callback-host") {
		t.Errorf("without callbacks: %v", err)
	}
	for address, want := range map[string]bool{
		"93.184.216.34:443": true, "[2606:2800:220:1::1]:443": true, "10.1.9.9:80": true, "127.0.0.1:80": true,
		"10.2.0.1:80": false, "127.0.0.2:80": false, "[::1]:80": false, "169.254.169.254:80": false, "192.168.1.1:80": false,
		"172.16.0.1:80": false, "0.0.0.0:80": false, "100.64.0.1:80": false, "[fe80::1%lo]:80": false, "[fd00::1]:80": false, "[::ffff:127.0.0.2]:80": false,
		"224.0.0.1:80": false, "255.255.255.255:80": false, "[64:ff9b::a02:1]:80": false, "[::]:80": false,
	} {
		if err := c.hosts.dialable(address); (err == nil) != want {
			t.Errorf("%s: %v, want dialable: %v", address, err, want)
		}
	}
	// A name of the list that leads to this machine: the dialer refuses it.
	local := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(local.Close)
	port := local.URL[strings.LastIndexByte(local.URL, ':'):]
	c = callbacks(t, "localhost"+port)
	err := c.send(context.Background(), &storedResponse{order: order{ID: "x"}, State: job.Succeeded, URL: "http://localhost" + port}, time.Now())
	if err == nil || !strings.Contains(err.Error(), "not public") {
		t.Errorf("a name that leads to this machine: %v", err)
	}
}

// TestCallbackSettings refuses lists and secrets that are wrong.
func TestCallbackSettings(t *testing.T) {
	t.Parallel()
	good, _ := secretFile(t)
	bad := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(bad, []byte("c2hvcnQ=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ host, file, want string }{
		{"*", good, "--callback-host: '*' is no host"},
		{"http://a.example", good, "--callback-host: 'http://a.example' is no host"},
		{"a.example", "", "--callback-host needs --callback-secret-file"},
		{"a.example", bad, "line 1 of '" + bad + "' is no secret"},
		{"a.example", bad + "x", "no such file"},
	} {
		if _, err := NewCallbacks([]string{tt.host}, tt.file); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, %s: %v, want %q", tt.host, tt.file, err, tt.want)
		}
	}
}
