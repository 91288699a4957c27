package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// refusals is a transport that refuses requests and then responds. It has no network, so that the time of a test is not real.
type refusals struct {
	status  int
	after   string // Retry-After
	left    int    // refusals before a response
	calls   int
	bodies  []string
	between func()
}

// RoundTrip implements http.RoundTripper.
func (f *refusals) RoundTrip(r *http.Request) (*http.Response, error) {
	f.calls++
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	f.bodies = append(f.bodies, string(body))
	if f.between != nil {
		f.between()
	}
	resp := &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"model_name":"m","outputs":[]}`)), Request: r}
	if f.left > 0 {
		f.left--
		resp.StatusCode, resp.Status = f.status, strconv.Itoa(f.status)+" refused"
		resp.Body = io.NopCloser(strings.NewReader(`{"error":"busy"}`))
		if f.after != "" {
			resp.Header.Set("Retry-After", f.after)
		}
	}
	return resp, nil
}

// TestRetryHTTP checks which requests are sent again over HTTP, how often, and after which time.
func TestRetryHTTP(t *testing.T) {
	t.Parallel()
	on := &Retry{Attempts: 3, MaxWait: 5 * time.Second}
	infer := func(ctx context.Context, c *HTTP) error {
		_, err := c.Infer(ctx, &Request{Model: "m", Inputs: []Tensor{Of("X", []int64{1}, int32(7))}})
		return err
	}
	for _, tt := range []struct {
		name   string
		retry  *Retry
		from   refusals
		send   func(ctx context.Context, c *HTTP) error
		calls  int
		waited time.Duration
		ok     bool
	}{
		{"twice refused", on, refusals{status: 503, after: "2", left: 2}, infer, 3, 4 * time.Second, true},
		{"too many requests", on, refusals{status: 429, after: "1", left: 1}, infer, 2, time.Second, true},
		{"off", nil, refusals{status: 503, after: "2", left: 1}, infer, 1, 0, false},
		{"one attempt", &Retry{Attempts: 1}, refusals{status: 503, after: "2", left: 1}, infer, 1, 0, false},
		{"too often", on, refusals{status: 503, after: "1", left: 9}, infer, 3, 2 * time.Second, false},
		{"no time", on, refusals{status: 503, left: 1}, infer, 1, 0, false},
		{"longer than MaxWait", on, refusals{status: 503, after: "6", left: 1}, infer, 1, 0, false},
		{"another status", on, refusals{status: 500, after: "1", left: 1}, infer, 1, 0, false},
		{"a sequence", on, refusals{status: 503, after: "1", left: 1}, func(ctx context.Context, c *HTTP) error {
			_, err := c.Infer(ctx, &Request{Model: "m", Sequence: &Sequence{ID: 1}})
			return err
		}, 1, 0, false},
		{"a load", on, refusals{status: 503, after: "1", left: 1}, func(ctx context.Context, c *HTTP) error { return c.Load(ctx, "m") }, 1, 0, false},
		{"statistics", on, refusals{status: 503, after: "1", left: 1}, func(ctx context.Context, c *HTTP) error {
			_, err := c.Statistics(ctx, "m")
			return err
		}, 2, time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := NewHTTP("http://server", &HTTPOptions{Options: Options{Retry: tt.retry}})
				c.http.Transport = &tt.from
				begin := time.Now()
				err := tt.send(t.Context(), c)
				if (err == nil) != tt.ok || tt.from.calls != tt.calls || time.Since(begin) != tt.waited {
					t.Errorf("%d calls in %s, %v; want %d in %s", tt.from.calls, time.Since(begin), err, tt.calls, tt.waited)
				}
				for _, body := range tt.from.bodies {
					if body != tt.from.bodies[0] {
						t.Errorf("another body is sent again: %q, %q", body, tt.from.bodies[0])
					}
				}
				e, refused := errors.AsType[*Error](err)
				if seconds, _ := strconv.Atoi(tt.from.after); !tt.ok && (!refused || e.RetryAfter != time.Duration(seconds)*time.Second) {
					t.Errorf("error %#v", err)
				}
			})
		})
	}
}

// TestRetryEnds checks that a context ends a wait, and that a wait that its deadline would end does not begin.
func TestRetryEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewHTTP("http://server", &HTTPOptions{Options: Options{Retry: &Retry{Attempts: 3}}})
		ctx, cancel := context.WithCancel(t.Context())
		c.http.Transport = &refusals{status: 503, after: "30", left: 2, between: func() { time.AfterFunc(time.Second, cancel) }}
		begin := time.Now()
		_, err := c.Infer(ctx, &Request{Model: "m"})
		if e, ok := errors.AsType[*Error](err); !errors.Is(err, context.Canceled) || !ok || e.Text != "busy" || time.Since(begin) != time.Second {
			t.Errorf("a cancelled wait: %v after %s", err, time.Since(begin))
		}
		from := &refusals{status: 503, after: "30", left: 2}
		c.http.Transport = from
		ctx, cancel = context.WithTimeout(t.Context(), 29*time.Second)
		defer cancel()
		begin = time.Now()
		if _, err = c.Infer(ctx, &Request{Model: "m"}); err == nil || errors.Is(err, context.DeadlineExceeded) || from.calls != 1 || time.Since(begin) != 0 {
			t.Errorf("a wait beyond the deadline: %v after %s and %d calls", err, time.Since(begin), from.calls)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[string]time.Duration{
			"": 0, "0": 0, "7": 7 * time.Second, "-1": 0, "1.5": 0, "soon": 0, "99999999999": 0, "Fri, 01 Jan 1999 00:00:00 GMT": 0,
			time.Now().UTC().Add(time.Minute).Format(http.TimeFormat): time.Minute,
		} {
			if got := retryAfter(value); got != want {
				t.Errorf("Retry-After: %s is %s, want %s", value, got, want)
			}
		}
	})
}
