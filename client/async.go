package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/job"
)

// Async is a request that a server executes asynchronously. The server keeps it whatever process ends, this one included: ID finds it
// again with HTTP.Async. It is safe for concurrent use. A refusal by the server is an *Error.
type Async struct {
	// ID identifies the request. It cannot be guessed: who has it may read and remove the result. Empty for a request that the
	// server has executed at once.
	ID string

	c    *HTTP
	done *Response          // of a request that was executed at once
	at   *job.RequestStatus // of such a request
}

// The intervals at which Wait asks for the state.
const (
	firstPoll = 20 * time.Millisecond
	lastPoll  = time.Second
)

// InferAsync sends one request that the server stores and executes later (Prefer: respond-async). It returns when the request is durable.
// A server that was started without --jobs, and one that cannot execute the request later, because it belongs to a sequence, executes
// it at once: the handle has the result then. For example:
//
//	a, err := c.InferAsync(ctx, req)
//	st, err := a.Wait(ctx)
//	resp, err := a.Result(ctx)
func (c *HTTP) InferAsync(ctx context.Context, req *Request) (*Async, error) {
	hr, err := c.newInfer(ctx, req)
	if err != nil {
		return nil, err
	}
	hr.Header.Set("Prefer", "respond-async")
	now := time.Now().UTC()
	r, err := c.do(hr)
	if err != nil {
		return nil, err
	}
	if r.code == http.StatusAccepted {
		var st job.RequestStatus
		if err = json.Unmarshal(r.body, &st); err != nil || st.ID == "" {
			return nil, errors.Join(fmt.Errorf("the response of %s is not the expected status of a request", hr.URL), err)
		}
		return c.Async(st.ID), nil
	}
	a := &Async{c: c, at: &job.RequestStatus{
		Model: req.Model, Version: req.Version, State: job.Succeeded, Created: now, Started: now, Ended: time.Now().UTC(), Attempts: 1, Code: r.code,
	}}
	a.done, err = r.parse(req.Regions)
	return a, err
}

// Async returns the handle of a request that InferAsync has sent, for example from another process.
func (c *HTTP) Async(id string) *Async { return &Async{ID: id, c: c} }

// path returns the path of the request.
func (a *Async) path() string { return job.RequestPath(url.PathEscape(a.ID)) }

// Status returns the request as it is now.
func (a *Async) Status(ctx context.Context) (*job.RequestStatus, error) {
	if a.done != nil {
		st := *a.at
		return &st, nil
	}
	st := &job.RequestStatus{}
	return st, a.c.call(ctx, a.path(), nil, st)
}

// Wait returns the status of the request when it has ended: it has succeeded, has failed or was cancelled. It goes on while the server is
// away or unavailable (503), until ctx is done; the error has the last one of the server then.
func (a *Async) Wait(ctx context.Context) (*job.RequestStatus, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last error
	for pause := firstPoll; ; pause = min(pause*3/2, lastPoll) {
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), last)
		case <-timer.C:
		}
		st, err := a.Status(ctx)
		switch {
		case err == nil && st.State.Final():
			return st, nil
		case err != nil && ctx.Err() == nil:
			if e, refused := errors.AsType[*Error](err); refused && !strings.HasPrefix(e.Status, "503") {
				return nil, err
			}
			last = err
		}
		timer.Reset(pause)
	}
}

// Result returns the response to the request. The *Error has the status of the response that Infer had got for a request that has failed,
// 409 before the end, 410 for one that was cancelled, and 404 for one whose result was removed.
func (a *Async) Result(ctx context.Context) (*Response, error) {
	if a.done != nil {
		return a.done, nil
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodGet, a.c.url+a.path()+"/result", http.NoBody)
	if err != nil {
		return nil, err
	}
	r, err := a.c.do(hr)
	if err != nil {
		return nil, err
	}
	return r.parse(nil)
}

// Cancel ends a request that has not ended: one that is executed, after some seconds. It removes the result of one that has ended.
func (a *Async) Cancel(ctx context.Context) error {
	if a.done != nil {
		return nil
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodDelete, a.c.url+a.path(), bytes.NewReader(nil))
	if err != nil {
		return err
	}
	_, err = a.c.do(hr)
	return err
}
