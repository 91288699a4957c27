package async

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
)

// TestMany submits many requests at once, kills the Temporal server meanwhile, and expects each result.
func TestMany(t *testing.T) {
	t.Parallel()
	n := 1000
	if testing.Short() {
		n = 100
	}
	r := newRig(t, nil)
	r.work()
	r.await(r.submit("first", "").ID, "at an end", ended)
	ids := make([]string, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			for t.Context().Err() == nil {
				st, err := r.service.Submit(t.Context(), &job.Request{Model: "echo", Body: fmt.Appendf(nil, "body %d", i)})
				if err == nil {
					ids[i] = st.ID
					return
				}
				if status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) == 0 {
					t.Errorf("request %d: %v", i, err)
					return
				}
			}
		})
	}
	wait.Wait()
	r.killTemporal()
	r.startTemporal()
	for i, id := range ids {
		if st := r.await(id, "at an end", ended); st.State != job.Succeeded {
			t.Errorf("request %d: %+v", i, st)
		}
		if got := r.result(id); got != fmt.Sprintf("body %d", i) {
			t.Errorf("request %d has the result %q", i, got)
		}
	}
}

// TestTries repeats a request while the model is not there, and returns every other error at once.
func TestTries(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	r := newRig(t, func(s *Settings) {
		s.Execute = func(_ context.Context, req *job.Request) *job.Reply {
			if string(req.Body) == "wrong" {
				return refusal(http.StatusInternalServerError, "STEP_FAILED", "false", `{"error":"the model failed"}`)
			}
			if string(req.Body) == "crash" {
				return refusal(http.StatusServiceUnavailable, "REQUEST_CRASHES_MODEL", "false", `{"error":"again and again"}`)
			}
			if string(req.Body) == "many" && calls.Add(1) == 3 {
				return refusal(http.StatusTooManyRequests, "OVER_SHARE", "true", `{"error":"too many"}`)
			}
			if calls.Add(1) == 1 {
				return reply(http.StatusServiceUnavailable, `{"error":"the queue is full"}`)
			}
			return reply(http.StatusOK, "done")
		}
	})
	id := r.submit("right", "").ID
	if st := r.await(id, "queued", func(*job.RequestStatus) bool { return true }); st.State != job.Queued || st.Attempts != 0 {
		t.Errorf("without a worker: %+v", st)
	}
	if got, st, err := r.service.Result(t.Context(), id); got != nil || err != nil || st.State != job.Queued {
		t.Errorf("the result before the end: %v, %+v, %v", got, st, err)
	}
	r.work()
	r.await(id, "waiting for its next attempt", func(st *job.RequestStatus) bool { return st.Reason == "the queue is full" || st.Attempts > 1 })
	if st := r.await(id, "at an end", ended); st.State != job.Succeeded || st.Attempts != 2 || r.result(id) != "done" {
		t.Errorf("after the second attempt: %+v", st)
	}
	wrong := r.submit("wrong", "").ID
	if st := r.await(wrong, "at an end", ended); st.State != job.RequestFailed || st.Code != http.StatusInternalServerError || st.Attempts != 1 || r.result(wrong) != `{"error":"the model failed"}` || st.ErrorReason != "STEP_FAILED" || st.Retryable {
		t.Errorf("a request that fails: %+v", st)
	}
	if st := r.await(r.submit("crash", "").ID, "at an end", ended); st.State != job.RequestFailed || st.Code != http.StatusServiceUnavailable || st.Attempts != 1 || st.ErrorReason != "REQUEST_CRASHES_MODEL" || st.Retryable {
		t.Errorf("a request that ends the model's process: %+v", st)
	}
	if st := r.await(r.submit("many", "").ID, "at an end", ended); st.State != job.Succeeded || st.Attempts != 2 || st.ErrorReason != "" {
		t.Errorf("a request of a client over its share: %+v", st)
	}
}

// refusal is a response with what an error says.
func refusal(code int, reason, retryable, text string) *job.Reply {
	r := reply(code, text)
	r.Header.Set(status.ReasonHeader, reason)
	r.Header.Set(status.RetryableHeader, retryable)
	return r
}

// TestCancel cancels a request that waits, one that is executed, and removes the result of one that has ended.
func TestCancel(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	r := newRig(t, func(s *Settings) {
		s.Execute = func(ctx context.Context, req *job.Request) *job.Reply {
			if string(req.Body) == "long" {
				begun <- struct{}{}
				<-ctx.Done()
				return reply(http.StatusBadRequest, `{"error":""}`)
			}
			return echo(ctx, req)
		}
	})
	cancelled := func(id string) {
		t.Helper()
		if _, err := r.service.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		r.await(id, "cancelled", func(st *job.RequestStatus) bool { return st.State == job.RequestCancelled })
		if got, st, err := r.service.Result(t.Context(), id); got != nil || err != nil || st.State != job.RequestCancelled {
			t.Errorf("the result of a cancelled request: %v, %+v, %v", got, st, err)
		}
	}
	cancelled(r.submit("waits", "").ID)
	r.work()
	long := r.submit("long", "").ID
	<-begun
	cancelled(long)
	short := r.submit("short", "").ID
	r.await(short, "at an end", ended)
	if st, err := r.service.Cancel(t.Context(), short); err != nil || st.State != job.Succeeded {
		t.Errorf("removing a result: %+v, %v", st, err)
	}
	for _, id := range []string{short, "none", "../../etc/passwd", newID(time.Now())} {
		if _, err := r.service.Show(t.Context(), id); status.CodeOf(err) != status.NotFound {
			t.Errorf("%s: %v", id, err)
		}
		if _, _, err := r.service.Result(t.Context(), id); status.CodeOf(err) != status.NotFound {
			t.Errorf("the result of %s: %v", id, err)
		}
		if _, err := r.service.Cancel(t.Context(), id); status.CodeOf(err) != status.NotFound {
			t.Errorf("cancelling %s: %v", id, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(r.set.Store, "*.re*")); err != nil || len(left) != 0 {
		t.Errorf("records are left: %v, %v", left, err)
	}
}

// TestFullStore refuses requests while the storage is full, and repeats those whose result cannot be stored.
func TestFullStore(t *testing.T) {
	t.Parallel()
	var full atomic.Value
	full.Store(kindRequest)
	m := &memory{objects: map[string][]byte{}, full: func(key string) error {
		if strings.HasSuffix(key, full.Load().(string)) {
			return status.Errorf(status.Unavailable, "no space left on device")
		}
		return nil
	}}
	r := newRig(t, func(s *Settings) { s.Store, s.Data = "s3://bucket/requests", m.options() })
	r.work()
	_, err := r.service.Submit(t.Context(), &job.Request{Model: "echo", Body: []byte("x")})
	if status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) == 0 || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "--async-dir") {
		t.Errorf("a full storage: %v", err)
	}
	full.Store(kindResponse)
	id := r.submit("y", "").ID
	r.await(id, "waiting for the storage", func(st *job.RequestStatus) bool { return strings.Contains(st.Reason, "no space left") })
	full.Store("nothing")
	if st := r.await(id, "at an end", ended); st.State != job.Succeeded || r.result(id) != "y" {
		t.Errorf("after there was space: %+v", st)
	}
	if keys := m.keys(); len(keys) != 1 || keys[0] != id+kindResponse {
		t.Errorf("records %v", keys)
	}
}

// TestExpiry removes results after their time, and fails requests that no worker executes.
func TestExpiry(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *Settings) { s.Keep = 2 * time.Second })
	lost := r.submit("lost", "").ID
	if st := r.await(lost, "at an end", ended); st.State != job.RequestFailed || !strings.Contains(st.Reason, "not executed within 2s") {
		t.Errorf("without a worker: %+v", st)
	}
	r.work()
	id := r.submit("x", "").ID
	if st := r.await(id, "at an end", ended); !st.Expires.Equal(st.Ended.Add(2 * time.Second)) {
		t.Errorf("it expires at %s, and has ended at %s", st.Expires, st.Ended)
	}
	if err := r.service.handle(id).Get(t.Context(), nil); err != nil { // Temporal has the end a moment after the response
		t.Error(err)
	}
	now := time.Now()
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 2}, {2*time.Second + time.Minute + 2*2*time.Second, 0}} {
		if err := r.service.records.sweep(t.Context(), now.Add(step.after), 2*time.Second); err != nil {
			t.Fatal(err)
		}
		left, err := filepath.Glob(filepath.Join(r.set.Store, "*.re*"))
		if err != nil || len(left) > step.want || step.want == 0 && len(left) != 0 {
			t.Errorf("after %s: %v, %v", step.after, left, err)
		}
	}
	if _, err := r.service.Show(t.Context(), id); status.CodeOf(err) != status.NotFound || !strings.Contains(err.Error(), "--async-result-time") {
		t.Errorf("a removed result: %v", err)
	}
}

// TestTemporalAway refuses requests while Temporal is away, has results nevertheless, and names what an old server lacks.
func TestTemporalAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.work()
	id := r.submit("x", "").ID
	r.await(id, "at an end", ended)
	r.killTemporal()
	_, err := r.service.Submit(t.Context(), &job.Request{Model: "echo", Body: []byte("y")})
	if status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) == 0 || !strings.Contains(err.Error(), "Temporal cannot be reached") {
		t.Errorf("without Temporal: %v", err)
	}
	if st, err := r.service.Show(t.Context(), id); err != nil || st.State != job.Succeeded || r.result(id) != "x" {
		t.Errorf("the result without Temporal: %+v, %v", st, err)
	}
	if left, err := filepath.Glob(filepath.Join(r.set.Store, "*"+kindRequest)); err != nil || len(left) != 0 {
		t.Errorf("requests are left: %v, %v", left, err)
	}
	r.startTemporal()
	st := r.submit("z", "")
	r.await(st.ID, "at an end", ended)

	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	old := grpc.NewServer() // it knows no method
	go func() { _ = old.Serve(l) }()
	t.Cleanup(old.Stop)
	set := r.set
	set.Client = connect(t, l.Addr().String())
	service, err := New(set)
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.Submit(t.Context(), &job.Request{Model: "echo", Body: []byte("y")})
	if status.CodeOf(err) != status.Unsupported || !strings.Contains(err.Error(), "activity.enableStandalone") {
		t.Errorf("an old Temporal server: %v", err)
	}
}

// TestRefused names the option to correct when Temporal refuses the calls of a server.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		refuse error
		want   string
	}{
		{grpcstatus.Error(codes.PermissionDenied, "no access"), "no access; check the client certificate of --temporal-tls-cert, or the API key of --temporal-api-key-file"},
		{grpcstatus.Error(codes.Unauthenticated, "the key has expired"), "the key has expired; renew the API key in the file of --temporal-api-key-file"},
	} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return tt.refuse }))
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		service, err := New(Settings{Client: connect(t, l.Addr().String()), Store: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		_, err = service.Submit(t.Context(), &job.Request{Model: "echo", Body: []byte("y")})
		if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}
